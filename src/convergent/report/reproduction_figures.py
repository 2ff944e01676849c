"""The figures of the page on the paper's experiments: each from one table of results, None where it has nothing to show.

Colours are those of Okabe and Ito, and every line has its own marker and dashes too: the figures can be told apart in grey.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from convergent.experiments.printed import LAYERS_AT, VALUE_ITERATION, Cell
from convergent.report.reproduction_tables import GIBIBYTE, at_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Table = Mapping[str, Any]

WIDTH, HEIGHT, DPI = 7.0, 3.4, 200  # inches: the width of a printed page
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9", "#8C564B")
MARKERS, DASHES = "osD^vPX*", ("-", "--", "-.", ":")
GRID_COLOUR, EDGE_COLOUR = "#d9d9d9", "#b0b0b0"
MEGABYTE = 1e6


def save(figure: Figure, path: Path, dpi: int = DPI) -> None:
    """As PNG, drawn without a display; the same figure gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi, metadata={"Software": None})


# --- by kind of table ---


def mse_by_pores(table: Table) -> Figure | None:
    """The median over runs; stacks of several layers are told apart by the next figure only."""
    rows = {model: _runs(row) for model, row in table.get("rows", {}).items() if row.get("mse") and all(row["mse"])}
    if not rows or not table.get("sizes"):
        return None
    figure, (axes,) = new_figure()
    _medians(axes, table["sizes"], rows)
    return finished(figure, axes, "pores of the network", "mean squared error", y="log")


def mse_by_layers(table: Table) -> Figure | None:
    """GNN(n) against n, every run a dot; a model that is no such stack is a line across."""
    sizes, rows = table.get("sizes") or [], table.get("rows", {})
    if LAYERS_AT not in sizes:
        return None
    runs = {name: _runs(row)[:, sizes.index(LAYERS_AT)] for name, row in rows.items() if row.get("mse") and all(row["mse"])}
    stacks = {int(found[1]): each for name, each in runs.items() if (found := re.fullmatch(r"GNN\((\d+)\)", name))}
    if not stacks:
        return None
    figure, (axes,) = new_figure()
    depths = sorted(stacks)
    axes.plot(depths, [np.median(stacks[depth]) for depth in depths], color=COLOURS[0], label="GNN(n), median")
    dots = np.array([(depth, value) for depth in depths for value in stacks[depth]])
    axes.plot(*dots.T, "o", color=COLOURS[0], fillstyle="none", markersize=4, label="GNN(n), every run")
    others = {name: each for name, each in runs.items() if not name.startswith("GNN(")}
    styles = islice(line_styles(), 1, None)  # the first is taken
    for (name, each), (colour, _, dashes) in zip(others.items(), styles, strict=False):
        axes.axhline(float(np.median(each)), color=colour, linestyle=dashes, label=name)
    axes.set_xticks(depths)
    return finished(figure, axes, "layers n", f"mean squared error at {LAYERS_AT} pores", y="log")


def training_curves(table: Table) -> Figure | None:
    """The median over runs, and for CGS their whole range."""
    rows = {model: row for model, row in table.get("rows", {}).items() if row.get("steps") and row.get("seeds")}
    if not rows:
        return None
    figure, (axes,) = new_figure()
    steps = next(iter(rows.values()))["steps"]
    runs = {model: np.array(list(row["seeds"].values()), dtype=float) for model, row in rows.items()}
    for model, colour in _medians(axes, steps, runs).items():
        if model.startswith("CGS"):
            axes.fill_between(steps, runs[model].min(0), runs[model].max(0), color=colour, alpha=0.15, linewidth=0)
    return finished(figure, axes, "gradient steps", "mean squared error", y="log")


def errors_by_size(table: Table, printed: Mapping[str, Mapping[str, Sequence[Cell]]]) -> Figure | None:
    """The error of every model in every column of a table on value iteration; hollow: the paper's."""
    rows = {model: row["mape"] for model, row in table.get("rows", {}).items() if any(row.get("mape") or ())}
    columns = [tuple(column) for column in table.get("columns", ())]
    if not rows or not columns:
        return None
    figure, (axes,) = new_figure()
    offsets = np.linspace(-0.3, 0.3, len(rows)) if len(rows) > 1 else [0.0]
    for (model, cells), (colour, marker, _), offset in zip(rows.items(), line_styles(), offsets, strict=False):
        for where, cell in enumerate(cells):
            _dot(axes, where + offset, cell, colour, marker, filled=True)
        for where, cell in enumerate(at_columns(printed.get(model, {}).get("mape", ()), columns)):
            _dot(axes, where + offset + 0.04, cell, colour, marker, filled=False)
        axes.plot([], [], marker, color=colour, label=model)
    axes.plot([], [], "o", color="#555555", fillstyle="none", label="the paper's")
    axes.set_xticks(range(len(columns)), [f"{states}, {actions}" for states, actions in columns])
    return finished(figure, axes, "states, actions", "mean absolute percentage error", y="log")


def errors_by_gamma(table: Table) -> Figure | None:
    """A line per column of the table; dashed: the paper's."""
    ours = _by_gamma({name: row.get("mape") for name, row in table.get("rows", {}).items()})
    columns = [tuple(column) for column in table.get("columns", ())]
    if not ours or not columns:
        return None
    theirs = _by_gamma({name: at_columns(row["mape"], columns) for name, row in VALUE_ITERATION["ablation-gamma"].items()})
    figure, (axes,) = new_figure()
    for where, ((states, actions), (colour, marker, _)) in enumerate(zip(columns, line_styles(), strict=False)):
        _line_of_means(axes, ours, where, color=colour, marker=marker, label=f"{states} states, {actions} actions")
        _line_of_means(axes, theirs, where, color=colour, marker=marker, linestyle="--", fillstyle="none", alpha=0.7)
    return finished(figure, axes, "contraction γ", "mean absolute percentage error")


def errors_by_graphs(table: Table) -> Figure | None:
    rows = {model: row["mape"] for model, row in table.get("rows", {}).items() if row.get("mape")}
    if not rows or not table.get("sizes"):
        return None
    figure, (axes,) = new_figure()
    _error_bars(axes, table["sizes"], rows)
    axes.set_xscale("log", base=2)
    axes.set_xticks(table["sizes"], [f"{size:,}" for size in table["sizes"]])
    return finished(figure, axes, "training graphs", "mean absolute percentage error")


def values_on_graphs(table: Table) -> Figure | None:
    """A row per graph: predicted and true values, in the same colours."""
    graphs = [graph for graph in table.get("graphs", ()) if graph.get("predicted") and graph.get("true")]
    if not graphs:
        return None
    figure, axes = new_figure(rows=len(graphs), columns=2, height=2.8 * len(graphs))
    for number, graph in enumerate(graphs):
        low, high = (choose([*graph["predicted"], *graph["true"]]) for choose in (min, max))
        places = np.asarray(graph.get("positions") or _circle(len(graph["true"])), dtype=float)
        pair = axes[2 * number : 2 * number + 2]
        for one, name in zip(pair, ("predicted", "true"), strict=True):
            dots = _draw_graph(one, places, graph.get("edges", ()), graph[name], low, high)
            one.set_title(f"{name}, {len(places):,} states", fontsize=9)
        figure.colorbar(dots, ax=list(pair), label="value", shrink=0.85)
    return figure


def runtime(table: Table) -> Figure | None:
    """Seconds and, where it was measured, memory."""
    rows, sizes = table.get("rows", {}), table.get("sizes")
    if not rows or not sizes:
        return None
    figure, axes = new_figure(columns=2, height=3.8)
    for axis, column, unit, label in zip(
        axes, ("median", "memory"), (1, GIBIBYTE), ("seconds (median)", "peak memory in GiB"), strict=True
    ):
        for (method, row), (colour, marker, dashes) in zip(rows.items(), line_styles(), strict=False):
            pairs = [(size, value / unit) for size, value in zip(sizes, row.get(column) or (), strict=False) if value]
            axis.plot(*_split(pairs), color=colour, marker=marker, linestyle=dashes, label=method, markersize=4, linewidth=1.2)
        axis.set(xscale="log", yscale="log", xlabel="states", ylabel=label)
        gridded(axis)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def memory_by_iterations(table: Table) -> Figure | None:
    rows = {name: row for name, row in table.get("rows", {}).items() if row.get("iterations")}
    if not rows:
        return None
    figure, (axes,) = new_figure()
    for (gradient, row), (colour, marker, _) in zip(rows.items(), line_styles(), strict=False):
        for column, name, dashes in (("saved", "saved for the gradient", "-"), ("peak", "peak of a step", ":")):
            pairs = [(n, value / MEGABYTE) for n, value in zip(row["iterations"], row.get(column) or (), strict=False) if value]
            axes.plot(*_split(pairs), color=colour, marker=marker, linestyle=dashes, label=f"{gradient}: {name}")
    return finished(figure, axes, "iterations", "MB")


# --- strokes ---


def new_figure(rows: int = 1, columns: int = 1, height: float = HEIGHT) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure((WIDTH, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(rows, columns)).flat)


def line_styles() -> Iterator[tuple[str, str, str]]:
    """Colour, marker and dashes without end; where a colour comes again, its marker and dashes are others."""
    for number in count():
        again, place = divmod(number, len(COLOURS))
        yield COLOURS[place], MARKERS[(place + 3 * again) % len(MARKERS)], DASHES[(place + again) % len(DASHES)]


def finished(figure: Figure, axes: Axes, x_label: str, y_label: str, y: str = "linear") -> Figure:
    axes.set(xlabel=x_label, ylabel=y_label, yscale=y)
    gridded(axes)
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    return figure


def gridded(axes: Axes) -> None:
    axes.grid(color=GRID_COLOUR, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _runs(row: Table) -> np.ndarray:
    """Means of every run, [runs, columns]; of what was not trained, its only one."""
    every = row.get("seeds") or {"only": row["mse"]}
    return np.array([[mean for mean, _ in cells] for cells in every.values()], dtype=float)


def _medians(axes: Axes, x: Sequence[float], rows: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Of rows [runs, points]; stacks of two layers and more in grey, all alike. The colours of the others."""
    deep = [name for name in rows if re.fullmatch(r"GNN\(\d+\)", name) and name != "GNN(1)"]
    for number, name in enumerate(deep):
        label = f"{deep[0]} to {deep[-1]}" if number == 0 else None
        axes.plot(x, np.median(rows[name], 0), color=EDGE_COLOUR, linewidth=0.9, label=label, zorder=1)
    styles = dict(zip([name for name in rows if name not in deep], line_styles(), strict=False))
    for name, (colour, marker, dashes) in styles.items():
        points = np.median(rows[name], 0)
        axes.plot(x, points, color=colour, marker=marker, linestyle=dashes, markersize=4, linewidth=1.2, label=name)
    return {name: colour for name, (colour, _, _) in styles.items()}


def _error_bars(axes: Axes, x: Sequence[float], rows: Mapping[str, Sequence[Cell]]) -> None:
    """Mean and standard deviation of every row against x."""
    for (name, cells), (colour, marker, dashes) in zip(rows.items(), line_styles(), strict=False):
        found = [(where, *cell) for where, cell in zip(x, cells, strict=False) if cell]
        where, mean, spread = zip(*found, strict=True) if found else ((), (), ())
        style: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": dashes, "markersize": 4, "linewidth": 1.2}
        axes.errorbar(where, mean, _whiskers(mean, spread), **style, label=name, capsize=2, elinewidth=0.6)


def _whiskers(mean: Sequence[float], spread: Sequence[float | None]) -> np.ndarray:
    """[2, points]: down and up by a standard deviation, but not to zero, which a logarithm has no place for."""
    up = np.asarray([value or 0.0 for value in spread], dtype=float)
    return np.stack([np.minimum(up, 0.99 * np.abs(np.asarray(mean, dtype=float))), up])


def _dot(axes: Axes, where: float, cell: Cell, colour: str, marker: str, filled: bool) -> None:
    if not cell or cell[0] is None:
        return
    bars = _whiskers([cell[0]], [cell[1]])
    face = "full" if filled else "none"
    axes.errorbar([where], [cell[0]], bars, fmt=marker, color=colour, fillstyle=face, markersize=4, elinewidth=0.5, capsize=0)


def _by_gamma(rows: Mapping[str, Sequence[Cell] | None]) -> dict[float, Sequence[Cell]]:
    """Rows named gamma=NUMBER, in order."""
    found = {float(name.partition("=")[2]): cells for name, cells in rows.items() if name.startswith("gamma=") and cells}
    return dict(sorted(found.items()))


def _line_of_means(axes: Axes, rows: Mapping[float, Sequence[Cell]], column: int, **style: Any) -> None:
    pairs = [(x, cell[0]) for x, cells in rows.items() if column < len(cells) and (cell := cells[column]) and cell[0] is not None]
    axes.plot(*_split(pairs), markersize=4, linewidth=1.2, **style)


def _split(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in pairs], [y for _, y in pairs]


def _draw_graph(
    axes: Axes, places: np.ndarray, edges: Sequence[Sequence[int]], values: Sequence[float], low: float, high: float
) -> Any:
    from matplotlib.collections import LineCollection

    axes.add_collection(LineCollection([places[list(edge)] for edge in edges], colors=EDGE_COLOUR, linewidths=0.3, zorder=1))
    axes.set_axis_off()
    axes.set_aspect("equal")
    x, y = places.T
    return axes.scatter(x, y, c=values, vmin=low, vmax=high, s=36, edgecolors="black", linewidths=0.4, zorder=2)


def _circle(count: int) -> np.ndarray:
    angle = np.arange(count) * 2 * np.pi / count
    return np.stack([np.cos(angle), np.sin(angle)], 1)
