"""The figures of a page, as data for plotly.js.

Numbers are plain lists, because restyling and gaps between lines work with those. Words are escaped: plotly.js interprets tags
in them. The page's script sets the colours of text and grid, because only it knows whether the page is light or dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from convergent.report.contents import Curve, Points
from convergent.report.drawing import NEUTRAL, Drawn, Floats, Trace, figure_of, pair, plain, sentence
from convergent.report.numbers import fixed

INKS = ("#3d86f0", "#e0703a", "#a35bd6", "#1f9e89", "#d9487d", "#a08a2c")  # readable on white and on black
MOST_POINTS = 20_000  # a phone draws that many without a pause
FEW_STEPS = 40  # up to which every step of a curve gets a dot


# --- curves ---


def draw_curves(curves: Sequence[Curve]) -> Drawn | None:
    """Every curve against its steps, on a logarithmic axis; None where nothing is left to show."""
    traces: list[Trace] = []
    left_out = 0
    for index, curve in enumerate(curves):
        steps, values = pair("curve", curve.name, "steps", curve.steps, "values", curve.values)
        shown = np.isfinite(steps) & np.isfinite(values) & (values > 0)
        left_out += int((~shown).sum())
        if shown.any():
            traces.append(_curve_trace(curve.name, steps[shown], values[shown], INKS[index % len(INKS)]))
    if not traces:
        return None
    layout = {
        "margin": {"l": 56, "r": 12, "t": 36, "b": 48},
        "font": {"size": 12},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "itemsizing": "constant"},
        "showlegend": True,
        "hovermode": "x unified",
        "xaxis": {"title": {"text": "step"}, "zeroline": False},
        "yaxis": {"zeroline": False, "type": "log", "exponentformat": "power"},
    }
    return Drawn(figure_of(traces, layout), sentence(left_out, "value", "that {is} not finite or not above zero {is} left out"))


def _curve_trace(name: str, steps: Floats, values: Floats, ink: str) -> Trace:
    few = len(steps) <= FEW_STEPS
    look = {"mode": "lines+markers", "marker": {"size": 5}} if few else {"mode": "lines"}
    line = {"color": ink, "width": 2 if few else 1.25}
    data = {"x": plain(steps), "y": plain(values), "line": line, "hovertemplate": "%{y:.3g}"}
    return {"type": "scatter", "name": escape(name)} | data | look


# --- predicted against exact ---


def draw_points(points: Sequence[Points]) -> Drawn | None:
    """Predicted against exact, one panel per group on shared axes; None where nothing is left to show.

    The figure has two layouts: ``layout`` with all panels in a row, ``narrow`` with two in a row.
    """
    pairs = [(group, *pair("points", group.name, "exact", group.exact, "predicted", group.predicted)) for group in points]
    finite = [(group, *_both_finite(exact, predicted)) for group, exact, predicted in pairs]
    shown = [(group, exact, predicted) for group, exact, predicted in finite if len(exact)]
    if not shown:
        return None
    dropped = sum(len(exact) for _, exact, _ in pairs) - sum(len(exact) for _, exact, _ in shown)
    room = MOST_POINTS // len(shown)
    values = np.concatenate([part for _, *both in shown for part in both])
    limits = (float(values.min()), float(values.max()))
    traces = []
    for index, (_, exact, predicted) in enumerate(shown):
        axes = {"xaxis": f"x{_key(index)}", "yaxis": f"y{_key(index)}"}
        traces += [_point_trace(*_thinned(exact, predicted, room)) | axes, _diagonal(limits) | axes]
    titles = [_panel_title(group) for group, _, _ in shown]
    figure = figure_of(traces, _panels(titles, 4, limits))
    figure["narrow"] = figure_of([], _panels(titles, 2, limits))["layout"]
    return Drawn(figure, _points_note(max(len(exact) for _, exact, _ in shown) > room, room, dropped))


def _both_finite(exact: Floats, predicted: Floats) -> tuple[Floats, Floats]:
    finite = np.isfinite(exact) & np.isfinite(predicted)
    return exact[finite], predicted[finite]


def _thinned(exact: Floats, predicted: Floats, room: int) -> tuple[Floats, Floats]:
    """At most ``room`` of them, drawn with a fixed seed; the one with the largest error is always among them."""
    if len(exact) <= room:
        return exact, predicted
    index = np.random.default_rng(0).permutation(len(exact))[:room]
    worst = abs(predicted - exact).argmax()  # thinning must not make the model look better
    if worst not in index:
        index[0] = worst
    index.sort()
    return exact[index], predicted[index]


def _panel_title(group: Points) -> str:
    return escape(group.name) if group.r2 is None else f"<b>{escape(group.name)}</b>  R² {fixed(group.r2, 3)}"


def _panels(titles: Sequence[str], most: int, limits: tuple[float, float]) -> dict[str, Any]:
    """Axes and titles of square panels, at most so many in a row; all have the same limits."""
    columns = min(most, len(titles))
    rows = -(-len(titles) // columns)
    margin = 0.03 * ((limits[1] - limits[0]) or 1.0)
    shared = {"range": [limits[0] - margin, limits[1] + margin], "zeroline": False, "constrain": "domain", "nticks": 4}
    layout: dict[str, Any] = {"annotations": []}
    for index, title in enumerate(titles):
        row, column, key = index // columns, index % columns, _key(index)
        left, bottom = column == 0, index + columns >= len(titles)
        layout[f"xaxis{key}"] = shared | {
            "domain": _share(column, columns, 0.05),
            "anchor": f"y{key}",
            "title": {"text": "exact" if bottom else "", "standoff": 6},
        }
        layout[f"yaxis{key}"] = shared | {
            "domain": _share(rows - 1 - row, rows, 0.16),
            "anchor": f"x{key}",
            "scaleanchor": f"x{key}",
            "showticklabels": left,
            "title": {"text": "predicted" if left else "", "standoff": 6},
        }
        place = {"xref": f"x{key} domain", "yref": f"y{key} domain", "x": 0, "y": 1, "xanchor": "left", "yanchor": "bottom"}
        layout["annotations"].append(place | {"text": title, "yshift": 3, "showarrow": False})
    sides = {"margin": {"l": 48, "r": 6, "t": 26, "b": 44}, "font": {"size": 12}}
    return sides | {"showlegend": False, "hovermode": "closest"} | layout


def _key(index: int) -> str:
    """How plotly.js numbers the axes of a panel: x, x2, x3."""
    return "" if index == 0 else str(index + 1)


def _share(place: int, count: int, gap: float) -> list[float]:
    """The part of [0, 1] for one of ``count`` panels with gaps between them."""
    width = (1 - gap * (count - 1)) / count
    return [place * (width + gap), min(1.0, place * (width + gap) + width)]


def _diagonal(limits: tuple[float, float]) -> Trace:
    ends = plain(np.array(limits))
    line = {"color": NEUTRAL, "width": 1.5}
    return {"type": "scattergl", "mode": "lines", "x": ends, "y": ends, "line": line, "hoverinfo": "skip"}


def _point_trace(exact: Floats, predicted: Floats) -> Trace:
    return {
        "type": "scattergl",
        "mode": "markers",
        "x": plain(exact),
        "y": plain(predicted),
        "marker": {"color": INKS[0], "size": 3, "opacity": 0.35},
        "hovertemplate": "exact %{x:.4g}<br>predicted %{y:.4g}<extra></extra>",
    }


def _points_note(thinned: bool, room: int, not_finite: int) -> str:
    words = f"At most {room:,} pores of each size are shown, chosen at random, always with the largest error." if thinned else ""
    return " ".join(filter(None, [words, sentence(not_finite, "pore", "without a finite value {is} left out")]))
