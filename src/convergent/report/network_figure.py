"""The figure of a network in space, as data for plotly.js."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convergent.errors import expect
from convergent.report.contents import Network
from convergent.report.drawing import NEUTRAL, Drawn, Flags, Floats, Trace, figure_of, pair, plain, sentence

PRESSURE = ("#2fb8ff", "#6f7bff", "#c055e8", "#ff5c8a", "#ff9a4d", "#ffe27a")
ERROR = ("#2b3644", "#4d5486", "#b2477f", "#ff7b54", "#ffe9a8")  # small ones recede
MOST_SPHERES = 1500  # pores that are drawn as shaded spheres; of more, as flat markers


def draw_network(network: Network) -> Drawn | None:
    """Pores and throats in space; None for a network without pores.

    Beside data and layout the figure has ``views``, the colours of each view, and ``spheres``, the radius of a pore in units of
    the axes: the page's script then draws shaded spheres in place of the flat markers. None: too many pores for that.
    """
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
    radius = float(np.clip(0.2 / len(place) ** (1 / 3), 0.012, 0.05))  # a share of the distance between neighbours
    spheres = round(radius, 4) if len(place) <= MOST_SPHERES else None
    figure = figure_of(traces, _scene_layout()) | {"views": views, "spheres": spheres}
    return Drawn(figure, sentence(int((~known).sum()), "pore", "without a finite value {is} grey"))


def _checked(network: Network) -> tuple[Floats, NDArray[np.int64], Floats, Floats]:
    position = np.asarray(network.position, dtype=np.float64)
    ends = np.asarray(network.ends)
    expect(position.ndim == 2 and position.shape[1] == 3, "network.position", "shape [N, 3]", list(position.shape))
    expect(bool(np.isfinite(position).all()), "network.position", "finite numbers", "some that are not")
    expect(ends.ndim == 2 and len(ends) == 2, "network.ends", "shape [2, E]", list(ends.shape))
    whole = ends.size == 0 or (ends.dtype.kind in "iu" and ends.min() >= 0 and ends.max() < len(position))
    expect(bool(whole), "network.ends", f"whole numbers from 0 to {len(position) - 1}", f"{ends.dtype} outside of that")
    exact, predicted = pair("network", "", "exact", network.exact, "predicted", network.predicted)
    expect(len(exact) == len(position), "network.exact", f"a value for each of {len(position)} pores", len(exact))
    return position, ends.astype(np.int64), exact, predicted


def _to_unit_box(position: Floats) -> Floats:
    """Positions in units of the longest side of the network, so that its scale does not matter."""
    low = position.min(axis=0)
    size = float((position.max(axis=0) - low).max())
    return (position - low) / (size or 1.0)


def _views(exact: Floats, predicted: Floats, known: Flags, ends: NDArray[np.int64]) -> list[dict[str, Any]]:
    """What the colours can show: the values of pores and of the ends of throats, and their scale."""
    error = abs(predicted - exact)
    both = np.concatenate([exact[known], predicted[known]])
    pressures = (float(both.min()), float(both.max()))  # one scale, so that both views can be compared
    return [
        _view("predicted pressure", predicted, known, ends, PRESSURE, *pressures),
        _view("exact pressure", exact, known, ends, PRESSURE, *pressures),
        _view("absolute error", error, known, ends, ERROR, 0.0, float(error[known].max())),
    ]


def _view(
    name: str, values: Floats, known: Flags, ends: NDArray[np.int64], colours: Sequence[str], low: float, high: float
) -> dict[str, Any]:
    along = np.stack([values[ends[0]], values[ends[1]], values[ends[1]]], axis=1)  # the third is for the gap between two lines
    return {
        "name": name,
        "pores": plain(values[known]),
        "throats": plain(along.reshape(-1)),
        "scale": [[index / (len(colours) - 1), colour] for index, colour in enumerate(colours)],
        "low": low,
        "high": high if high > low else low + max(1.0, abs(low)),  # a scale needs two ends, also for equal values
    }


def _frame(place: Floats) -> Trace:
    """The edges of the box around everything, drawn as one line with gaps."""
    low, high = place.min(axis=0), place.max(axis=0)
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)]) * (high - low) + low
    pairs = np.array([(i, i | bit) for i in range(8) for bit in (1, 2, 4) if not i & bit]).T
    return _lines(corners, pairs) | {"line": {"color": "#3a424d", "width": 1}}


def _throat_trace(place: Floats, ends: NDArray[np.int64], view: dict[str, Any] | None = None) -> Trace:
    width = 3 if len(place) <= MOST_SPHERES else 1.5
    line = {"color": NEUTRAL, "width": width} if view is None else {"width": width} | _tint(view, "throats")
    role = {"opacity": 0.25} if view is None else {"opacity": 0.45, "meta": "throats"}
    return _lines(place, ends) | {"line": line} | role


def _pore_trace(place: Floats, total: int, view: dict[str, Any] | None = None, words: Sequence[str] = ()) -> Trace:
    size = float(np.clip(72 / total ** (1 / 3), 3, 11))  # so that all pores together cover about the same area
    marker: dict[str, Any] = {"size": round(size, 2), "line": {"width": 0}, "opacity": 1}
    if view is None:
        role: Trace = {"hoverinfo": "skip", "meta": "grey pores"}
        marker |= {"color": NEUTRAL}
    else:
        role = {"text": list(words), "hovertemplate": "%{text}<extra></extra>", "meta": "pores"}
        marker |= _tint(view, "pores") | {"showscale": True, "colorbar": _bar(view["name"])}
    x, y, z = (plain(axis) for axis in place.T)
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
        first, second = plain(axis[ends[0]]), plain(axis[ends[1]])
        axes.append([value for start, stop in zip(first, second, strict=True) for value in (start, stop, None)])
    x, y, z = axes
    return {"type": "scatter3d", "mode": "lines", "x": x, "y": y, "z": z, "connectgaps": False, "hoverinfo": "skip"}


def _hover(exact: Floats, predicted: Floats, known: Flags) -> list[str]:
    return [
        f"pore {index:,}<br>predicted {predicted[index]:.4g}<br>exact {exact[index]:.4g}"
        f"<br>error {abs(predicted[index] - exact[index]):.2g}"
        for index in np.flatnonzero(known)
    ]


def _scene_layout() -> dict[str, Any]:
    hidden = {"visible": False, "showspikes": False}
    camera = {
        "eye": {"x": 1.17, "y": -1.73, "z": 0.84},
        "center": {"x": 0, "y": 0, "z": -0.1},
    }  # shows a whole cube, and leaves room for the bar
    return {
        "showlegend": False,
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0},
        "font": {"color": "#aab4c0", "size": 12},  # the background of this figure is always dark
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
