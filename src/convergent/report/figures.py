"""The figures of a page, as what plotly.js reads.

Numbers go in as plain lists, because restyling and gaps between lines are sure to work with those. Words are escaped: plotly.js
reads tags in them. Colours of text and grid are left to the page, which knows whether it is light or dark.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convergent.errors import expect
from convergent.report.contents import Curve, Network, Points

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Trace = dict[str, Any]

INKS = ("#3d86f0", "#e0703a", "#a35bd6", "#1f9e89", "#d9487d", "#a08a2c")  # to be read on white and on black
NEUTRAL = "#8b949e"
PRESSURE = ("#2fb8ff", "#6f7bff", "#c055e8", "#ff5c8a", "#ff9a4d", "#ffe27a")
ERROR = ("#2b3644", "#4d5486", "#b2477f", "#ff7b54", "#ffe9a8")  # small ones recede
MOST_POINTS = 20_000  # that a phone draws without a pause
FEW_STEPS = 40  # up to which every step of a curve gets a dot
DIGITS = 6


@dataclass(frozen=True)
class Drawn:
    """A figure, and what the reader has to know about it in words."""

    figure: dict[str, Any]
    note: str


# --- curves ---


def draw_curves(curves: Sequence[Curve]) -> Drawn | None:
    """Every curve against its steps, on a logarithmic axis; None where nothing is left to show."""
    traces: list[Trace] = []
    left_out = 0
    for index, curve in enumerate(curves):
        steps, values = _pair("curve", curve.name, "steps", curve.steps, "values", curve.values)
        shown = np.isfinite(steps) & np.isfinite(values) & (values > 0)
        left_out += int((~shown).sum())
        if shown.any():
            traces.append(_curve_trace(curve.name, steps[shown], values[shown], INKS[index % len(INKS)]))
    if not traces:
        return None
    layout = _flat_layout("step", "") | {"hovermode": "x unified"}
    layout["yaxis"] |= {"type": "log", "exponentformat": "power"}
    return Drawn(_figure(traces, layout), _note(left_out, "value", "that {is} not finite or not above zero {is} left out"))


def _curve_trace(name: str, steps: Floats, values: Floats, ink: str) -> Trace:
    few = len(steps) <= FEW_STEPS
    look = {"mode": "lines+markers", "marker": {"size": 5}} if few else {"mode": "lines"}
    line = {"color": ink, "width": 2 if few else 1.25}
    data = {"x": _plain(steps), "y": _plain(values), "line": line, "hovertemplate": "%{y:.3g}"}
    return {"type": "scatter", "name": escape(name)} | data | look


# --- predicted against exact ---


def draw_points(points: Sequence[Points]) -> Drawn | None:
    """Predicted against exact, and the line on which they agree; None where nothing is left to show."""
    pairs = [(group.name, *_pair("points", group.name, "exact", group.exact, "predicted", group.predicted)) for group in points]
    finite = [(name, *_both_finite(exact, predicted)) for name, exact, predicted in pairs]
    total, kept = sum(len(exact) for _, exact, _ in pairs), sum(len(exact) for _, exact, _ in finite)
    if not kept:
        return None
    chosen = _thinned([(name, exact, predicted) for name, exact, predicted in finite if len(exact)], kept)
    traces = [_point_trace(*group, INKS[index % len(INKS)]) for index, group in enumerate(chosen)]
    traces.append(_diagonal([values for _, *both in chosen for values in both]))
    layout = _flat_layout("exact", "predicted") | {"hovermode": "closest"}
    layout["yaxis"] |= {"scaleanchor": "x", "constrain": "domain"}
    layout["xaxis"] |= {"constrain": "domain"}
    return Drawn(_figure(traces, layout), _points_note(sum(len(exact) for _, exact, _ in chosen), kept, total - kept))


def _both_finite(exact: Floats, predicted: Floats) -> tuple[Floats, Floats]:
    finite = np.isfinite(exact) & np.isfinite(predicted)
    return exact[finite], predicted[finite]


def _thinned(groups: list[tuple[str, Floats, Floats]], total: int) -> list[tuple[str, Floats, Floats]]:
    """At most MOST_POINTS of all groups together, in proportion, drawn with one seed; the worst of every group is among them."""
    if total <= MOST_POINTS:
        return groups
    chosen = []
    for name, exact, predicted in groups:
        room = max(1, (MOST_POINTS - len(groups)) * len(exact) // total)
        index = np.random.default_rng(0).permutation(len(exact))[:room]
        index[0] = abs(predicted - exact).argmax()  # what flatters least is not left to chance
        index = np.unique(index)
        chosen.append((name, exact[index], predicted[index]))
    return chosen


def _diagonal(values: list[Floats]) -> Trace:
    low, high = min(float(part.min()) for part in values), max(float(part.max()) for part in values)
    ends = _plain(np.array([low, high]))
    line = {"color": NEUTRAL, "width": 1.5}
    return {"type": "scattergl", "mode": "lines", "x": ends, "y": ends, "line": line, "showlegend": False, "hoverinfo": "skip"}


def _point_trace(name: str, exact: Floats, predicted: Floats, ink: str) -> Trace:
    return {
        "type": "scattergl",
        "mode": "markers",
        "name": escape(name),
        "x": _plain(exact),
        "y": _plain(predicted),
        "marker": {"color": ink, "size": 4, "opacity": 0.55},
        "hovertemplate": "exact %{x:.4g}<br>predicted %{y:.4g}<extra>%{fullData.name}</extra>",
    }


def _points_note(shown: int, finite: int, not_finite: int) -> str:
    thinned = f"{shown:,} of {finite:,} pores are shown, the worst of every size among them." if shown < finite else ""
    return " ".join(filter(None, [thinned, _note(not_finite, "pore", "without a finite value {is} left out")]))


# --- the network ---


def draw_network(network: Network) -> Drawn | None:
    """Pores and throats in space, with the colours of every view beside the figure; None for a network without pores."""
    position, ends, exact, predicted = _checked(network)
    if not len(position):
        return None
    place, known = _to_unit_box(position), np.isfinite(exact) & np.isfinite(predicted)
    inside = known[ends].all(axis=0)  # throats between two pores with values, [E]
    views = _views(exact, predicted, known, ends[:, inside]) if known.any() else []
    traces = [_frame(place)]
    if not inside.all():
        traces.append(_throat_trace(place, ends[:, ~inside]))
    if inside.any():
        traces.append(_throat_trace(place, ends[:, inside], views[0]))
    if not known.all():
        traces.append(_pore_trace(place[~known], len(place)))
    if known.any():
        traces.append(_pore_trace(place[known], len(place), views[0], _hover(exact, predicted, known)))
    figure = _figure(traces, _scene_layout()) | {"views": views}
    return Drawn(figure, _note(int((~known).sum()), "pore", "without a finite value {is} grey"))


def _checked(network: Network) -> tuple[Floats, NDArray[np.int64], Floats, Floats]:
    position = np.asarray(network.position, dtype=np.float64)
    ends = np.asarray(network.ends)
    expect(position.ndim == 2 and position.shape[1] == 3, "network.position", "shape [N, 3]", list(position.shape))
    expect(bool(np.isfinite(position).all()), "network.position", "finite numbers", "some that are not")
    expect(ends.ndim == 2 and len(ends) == 2, "network.ends", "shape [2, E]", list(ends.shape))
    whole = ends.size == 0 or (ends.dtype.kind in "iu" and ends.min() >= 0 and ends.max() < len(position))
    expect(bool(whole), "network.ends", f"whole numbers from 0 to {len(position) - 1}", f"{ends.dtype} outside of that")
    exact, predicted = _pair("network", "", "exact", network.exact, "predicted", network.predicted)
    expect(len(exact) == len(position), "network.exact", f"a value for each of {len(position)} pores", len(exact))
    return position, ends.astype(np.int64), exact, predicted


def _to_unit_box(position: Floats) -> Floats:
    """Where things are, with the longest side of the whole as unit: metres and millimetres look the same."""
    low = position.min(axis=0)
    size = float((position.max(axis=0) - low).max())
    return (position - low) / (size or 1.0)


def _views(exact: Floats, predicted: Floats, known: Flags, ends: NDArray[np.int64]) -> list[dict[str, Any]]:
    """What can be shown in colour: the numbers of pores and of the ends of throats, and their scale."""
    error = abs(predicted - exact)
    both = np.concatenate([exact[known], predicted[known]])
    pressures = (float(both.min()), float(both.max()))  # one scale, so that two views can be compared
    return [
        _view("predicted pressure", predicted, known, ends, PRESSURE, *pressures),
        _view("exact pressure", exact, known, ends, PRESSURE, *pressures),
        _view("absolute error", error, known, ends, ERROR, 0.0, float(error[known].max())),
    ]


def _view(
    name: str, values: Floats, known: Flags, ends: NDArray[np.int64], colours: Sequence[str], low: float, high: float
) -> dict[str, Any]:
    along = np.stack([values[ends[0]], values[ends[1]], values[ends[1]]], axis=1)  # the third is the gap, which needs a number too
    return {
        "name": name,
        "pores": _plain(values[known]),
        "throats": _plain(along.reshape(-1)),
        "scale": [[index / (len(colours) - 1), colour] for index, colour in enumerate(colours)],
        "low": low,
        "high": high if high > low else low + max(1.0, abs(low)),  # one value has a colour too
    }


def _frame(place: Floats) -> Trace:
    """The edges of the box around everything, drawn as one line with gaps."""
    low, high = place.min(axis=0), place.max(axis=0)
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)]) * (high - low) + low
    pairs = np.array([(i, i | bit) for i in range(8) for bit in (1, 2, 4) if not i & bit]).T
    return _lines(corners, pairs) | {"line": {"color": "#3a424d", "width": 1}}


def _throat_trace(place: Floats, ends: NDArray[np.int64], view: dict[str, Any] | None = None) -> Trace:
    width = 3 if len(place) < 2000 else 1.5
    line = {"color": NEUTRAL, "width": width} if view is None else {"width": width} | _tint(view, "throats")
    role = {"opacity": 0.25} if view is None else {"opacity": 0.6, "meta": "throats"}
    return _lines(place, ends) | {"line": line} | role


def _pore_trace(place: Floats, total: int, view: dict[str, Any] | None = None, words: Sequence[str] = ()) -> Trace:
    size = float(np.clip(72 / total ** (1 / 3), 3, 11))  # of all pores together about the same
    marker: dict[str, Any] = {"size": round(size, 2), "line": {"width": 0}, "opacity": 1}
    if view is None:
        role: Trace = {"hoverinfo": "skip"}
        marker |= {"color": NEUTRAL}
    else:
        role = {"text": list(words), "hovertemplate": "%{text}<extra></extra>", "meta": "pores"}
        marker |= _tint(view, "pores") | {"showscale": True, "colorbar": _bar(view["name"])}
    x, y, z = (_plain(axis) for axis in place.T)
    return {"type": "scatter3d", "mode": "markers", "x": x, "y": y, "z": z, "marker": marker} | role


def _tint(view: dict[str, Any], part: str) -> dict[str, Any]:
    return {"color": view[part], "colorscale": view["scale"], "cmin": view["low"], "cmax": view["high"]}


def _bar(title: str) -> dict[str, Any]:
    return {
        "orientation": "h",
        "title": {"text": title, "side": "top"},
        "x": 0.5,
        "xanchor": "center",
        "y": 0.01,
        "yanchor": "bottom",
        "len": 0.6,
        "thickness": 7,
        "outlinewidth": 0,
        "nticks": 6,
    }


def _lines(place: Floats, ends: NDArray[np.int64]) -> Trace:
    """Separate lines as one trace: from, to, gap, from, to, gap."""
    axes = []
    for axis in place.T:
        first, second = _plain(axis[ends[0]]), _plain(axis[ends[1]])
        axes.append([value for start, stop in zip(first, second, strict=True) for value in (start, stop, None)])
    x, y, z = axes
    return {"type": "scatter3d", "mode": "lines", "x": x, "y": y, "z": z, "connectgaps": False, "hoverinfo": "skip"}


def _hover(exact: Floats, predicted: Floats, known: Flags) -> list[str]:
    return [
        f"pore {index:,}<br>predicted {predicted[index]:.4g}<br>exact {exact[index]:.4g}"
        f"<br>error {abs(predicted[index] - exact[index]):.2g}"
        for index in np.flatnonzero(known)
    ]


# --- what they share ---


def _scene_layout() -> dict[str, Any]:
    hidden = {"visible": False, "showspikes": False}
    camera = {
        "eye": {"x": 1.17, "y": -1.73, "z": 0.84},
        "center": {"x": 0, "y": 0, "z": -0.1},
    }  # all of a cube, and room for the bar
    return {
        "showlegend": False,
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0},
        "font": {"color": "#aab4c0", "size": 12},  # on the stage, which is dark by day too
        "hoverlabel": {"bgcolor": "#161b22", "bordercolor": "#3a424d", "font": {"color": "#e6edf3"}},
        "scene": {
            "xaxis": hidden,
            "yaxis": hidden,
            "zaxis": hidden,
            "aspectmode": "data",
            "dragmode": "turntable",
            "camera": camera,
        },
    }


def _flat_layout(x: str, y: str) -> dict[str, Any]:
    return {
        "margin": {"l": 56, "r": 12, "t": 36, "b": 48},
        "font": {"size": 12},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "itemsizing": "constant"},
        "showlegend": True,
        "xaxis": {"title": {"text": x}, "zeroline": False},
        "yaxis": {"title": {"text": y}, "zeroline": False},
    }


def _figure(traces: list[Trace], layout: dict[str, Any]) -> dict[str, Any]:
    """Checked by plotly, and back as plain data."""
    from plotly.graph_objects import Figure
    from plotly.io import to_json

    clear = "rgba(0,0,0,0)"
    figure = Figure(traces, {"template": "none", "autosize": True, "paper_bgcolor": clear, "plot_bgcolor": clear} | layout)
    return dict(json.loads(to_json(figure, engine="json")))


def _note(count: int, what: str, words: str) -> str:
    """A sentence about what a figure cannot show, or nothing where it shows all."""
    if not count:
        return ""
    said = words.replace("{is}", "is" if count == 1 else "are")
    return f"{count:,} {what}{'' if count == 1 else 's'} {said}."


def _pair(kind: str, name: str, first: str, one: ArrayLike, second: str, other: ArrayLike) -> tuple[Floats, Floats]:
    """Two lists of numbers, equally long."""
    where = f"{kind} '{name}'" if name else kind
    left, right = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    expect(left.ndim == 1, f"{where}.{first}", "a list of numbers", f"shape {list(left.shape)}")
    expect(left.shape == right.shape, f"{where}.{second}", f"as many numbers as {first}, {len(left)}", f"shape {list(right.shape)}")
    return left, right


def _plain(values: Floats) -> list[float]:
    """With as many digits as a screen can show."""
    return [float(f"{value:.{DIGITS}g}") for value in values]
