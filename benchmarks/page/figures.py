"""The pictures of the page, each from one report; None where it has nothing to show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.page import near_one as near
from benchmarks.page.reports import Case, Report, cases, detail, median, peers, ratio
from benchmarks.page.targets import wanted
from benchmarks.page.words import tidy
from convergent.report.reproduction_figures import COLOURS, EDGE_COLOUR, finished, line_styles, new_figure
from convergent.report.reproduction_tables import times

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

GAPS, INK, PAPER = "#eeeeee", "#000000", "#ffffff"


# --- a whole layer ---


def layer(report: Report) -> Figure | None:
    """A bar for every peer and contraction; hatched where its error is above the tolerance."""
    every = list(cases(report))
    names = list(dict.fromkeys(name for case in every for name in peers(case)))
    if not names:
        return None
    figure, (axes,) = new_figure(height=0.55 * len(names) + 1.0)
    width = 0.8 / len(every)
    for place, (case, colour) in enumerate(zip(every, COLOURS, strict=False)):
        for row, name in enumerate(names):
            if (value := ratio(case, name)) is not None:
                error = case["errors"].get(name, {}).get("value", 0)
                hatch = "////" if error > case["settings"]["tol"] else None
                where = row - 0.4 + (place + 0.5) * width
                axes.barh(where, value - 1, width, left=1, color=colour, hatch=hatch, edgecolor=PAPER, linewidth=0)
                axes.text(max(value, 1) * 1.08, where, times(value), va="center", fontsize=7)
        axes.barh([0], [0], color=colour, label=f"contraction {case['settings']['gamma']:g}")
    axes.barh([0], [0], color=EDGE_COLOUR, hatch="////", edgecolor=PAPER, label="error above the tolerance")
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_xscale("log")
    values = [value for case in every for name in names if (value := ratio(case, name))]
    axes.set_xlim(0.8 * min(1, *values), 3 * max(values))
    finished(figure, axes, "times as long as convergent (1: as fast)", "")
    axes.set_yticks(range(len(names)), names, fontsize=8)  # not before: a scale that is set makes its own
    axes.grid(visible=False, axis="y")
    axes.invert_yaxis()
    return figure


# --- near one ---


def near_one(report: Report) -> Figure | None:
    """A cell for every problem and method, coloured by its time relative to Auto where it reaches the error."""
    every = list(cases(report))
    names = [name for name in (*near.OWN, *near.others(every)) if any(name in case["timings"] for case in every)]
    if not names:
        return None
    values = np.array([[ratio(case, name) or np.nan for name in names] for case in every])
    reached = np.array([[counts(case, name) for name in names] for case in every])
    logarithm = np.log(np.where(reached, values, np.nan))
    known = logarithm[~np.isnan(logarithm)]
    low, high = min(-1.0, *known), max(1.0, *known)
    figure, (axes,) = new_figure(height=0.3 * len(every) + 2.0)
    axes.imshow(np.where(logarithm < 0, -logarithm / low, logarithm / high), cmap=blue_to_orange(), vmin=-1, vmax=1, aspect="auto")
    for row, case in enumerate(every):
        for column, name in enumerate(names):
            if not np.isnan(value := values[row, column]):
                axes.text(column, row, cell(case, name, value), ha="center", va="center", fontsize=5.5)
    axes.set_yticks(range(len(every)), [tidy(case["name"]) for case in every], fontsize=6.5)
    axes.set_xticks(range(len(names)), [near.OWN.get(name, name) for name in names], fontsize=6.5, rotation=40, ha="right")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return figure


def blue_to_orange() -> Colormap:
    """Blue where the other is faster, orange where it is slower, grey where there is no answer; light enough for black numbers."""
    from matplotlib.colors import LinearSegmentedColormap

    ends = "#56B4E9", PAPER, "#E69F00"
    return LinearSegmentedColormap.from_list("blue to orange", ends).with_extremes(bad=GAPS)


def counts(case: Case, name: str) -> bool:
    """Whether a time is that of an answer with the error that was asked for, or an estimate of one."""
    found = detail(case, name)
    return found.get("reached") is not False or bool(found.get("extrapolated"))


def cell(case: Case, name: str, value: float) -> str:
    found = detail(case, name)
    return times(value) + ("*" if found.get("extrapolated") else "" if counts(case, name) else f" {near.NOT_REACHED}")


# --- growth ---


def growth(report: Report) -> Figure | None:
    return drawn_growth(list(cases(report)), report)


def growth_on_a_gpu(report: Report) -> Figure | None:
    return drawn_growth(list(cases(report, "growth,")), report)


def drawn_growth(every: list[Case], report: Report) -> Figure | None:
    """Times against edges, the slope of each in the legend, and a line of slope 1 for the eye."""
    if len(every) < 2:
        return None
    figure, (axes,) = new_figure()
    edges = np.array([case["settings"]["edges"] for case in every], dtype=float)
    for name, (colour, marker, dashes) in zip(every[0]["timings"], line_styles(), strict=False):
        seconds = np.array([median(case, name) or np.nan for case in every])
        axes.plot(edges, seconds, color=colour, marker=marker, linestyle=dashes, markersize=4, label=labelled(report, name))
        axes.plot(edges, seconds[-1] * edges / edges[-1], color=EDGE_COLOUR, linewidth=0.8, zorder=1)
    axes.plot([], [], color=EDGE_COLOUR, linewidth=0.8, label="slope 1, through the last point")
    axes.set_xscale("log")
    return finished(figure, axes, "edges", "seconds", y="log")


def labelled(report: Report, name: str) -> str:
    found = [target["value"] for target in report["targets"] if "slope" in target["name"] and target["name"].endswith(f", {name}")]
    return f"{name}: slope {found[0]:.2f}" if found and found[0] is not None else name


# --- one iteration on a GPU ---


def copy_fraction(report: Report) -> Figure | None:
    """Fractions of the copy bandwidth against heads; hollow: without residual; dotted: the target."""
    if not any(cases(report, "iteration,")):
        return None
    figure, (axes,) = new_figure()
    labels = {"local": "neighbours close by", "random": "neighbours anywhere"}
    for (kind, words), (colour, marker, dashes) in zip(labels.items(), line_styles(), strict=False):
        every = list(cases(report, f"iteration, {kind},"))
        if not every:
            continue
        heads = [case["settings"]["heads"] for case in every]
        for key, face, end in (("fraction_of_copy", "full", ""), ("fraction_of_copy_product", "none", ", without residual")):
            height = [case["measured"][key] for case in every]
            style = dashes if not end else ":"
            axes.plot(heads, height, color=colour, marker=marker, linestyle=style, fillstyle=face, markersize=5, label=words + end)
        draw_target(axes, report, every[0], colour)
    axes.set_xscale("log", base=2)
    heads = sorted({case["settings"]["heads"] for case in cases(report, "iteration,")})
    axes.set_xticks(heads, [str(count) for count in heads])
    axes.minorticks_off()
    axes.set_ylim(0, 1)
    return finished(figure, axes, "heads", "fraction of the copy bandwidth")


def draw_target(axes: Axes, report: Report, case: Case, colour: str) -> None:
    goal = wanted(report, f"{case['name']}: fraction of the copy")
    if goal is not None:
        axes.axhline(goal, color=colour, linewidth=0.7, alpha=0.6, linestyle=(0, (6, 3)), label=f"wanted: {goal:g}")
