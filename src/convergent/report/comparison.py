"""The model beside simple baselines and the exact solve, in sentences and tables made from the results by size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from convergent.report.contents import SizeRow
from convergent.report.numbers import duration, fixed, number, percent

Cell = tuple[str, str]  # the class of the cell, and its words
Column = tuple[str, Callable[[SizeRow], Cell]]

MEASURES = (
    "Pores: the mean number over the networks of a size.",
    "R² is the share of the variance explained: 1 is perfect, 0 is as good as the mean. It is computed for each network against "
    "that network's own mean pressure, then averaged over the networks of a size.",
    "All pores count, also those at the inlet and the outlet, whose pressure is given to the model; "
    "R² of inner pores leaves these out.",
    "Mean error: mean absolute error as a share of the inlet pressure. Bold: the better of model and straight line.",
)
BASELINES = (
    "Straight line: the pressure falls linearly from the inlet to the outlet; it needs no training. "
    "Mean: every pore has the mean pressure of its network, which only the exact solution tells."
)


# --- sentences ---


def compared(rows: Sequence[SizeRow]) -> str:
    """At which sizes the model is better than a straight line, by R² and, where that differs, by mean error."""
    by_r2 = [row.model.r2 > row.line.r2 for row in rows]
    by_error = [row.model.mean_error < row.line.mean_error for row in rows]
    said = [_verdict("R²", rows, by_r2)]
    return " ".join(said if by_error == by_r2 else [*said, _verdict("mean error", rows, by_error)])


def _verdict(measure: str, rows: Sequence[SizeRow], better: Sequence[bool]) -> str:
    if all(better):
        return f"By {measure}, the model is better than the straight line at every size."
    if not any(better):
        return f"By {measure}, the model is not better than the straight line at any size."
    ours = listed([row.nodes for row, wins in zip(rows, better, strict=True) if wins])
    others = listed([row.nodes for row, wins in zip(rows, better, strict=True) if not wins])
    return f"By {measure}, the model is better than the straight line at {ours} pores, and the straight line is better at {others}."


def listed(sizes: Sequence[int]) -> str:
    words = [f"{size:,}" for size in sizes]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def certificate(rows: Sequence[SizeRow]) -> str:
    worst = max(row.worst_bound if math.isfinite(row.worst_bound) else math.inf for row in rows)
    if worst == math.inf:
        return "The error of some fixed points has no finite upper bound."
    said = number(worst, up=True)
    return f"Each fixed point is computed to within {said} of the exact one; this bounds the solver's error, not the model's error."


def timed(rows: Sequence[SizeRow]) -> str:
    """At which sizes the model is faster than the exact solve."""
    faster = [row.nodes for row in rows if row.seconds < row.exact_seconds]
    if not faster:
        return "The exact solve is faster than the model at every size."
    place = "at every size" if len(faster) == len(rows) else f"only at {listed(faster)} pores"
    return f"The model is faster than the exact solve {place}."


# --- tables ---


def accuracy_table(rows: Sequence[SizeRow]) -> str:
    columns: list[Column] = [
        ("R²: model", lambda row: _high(row.model.r2, row.line.r2)),
        ("R²: straight line", lambda row: _high(row.line.r2, row.model.r2)),
        ("R² of inner pores: model", lambda row: _high(row.model.inner_r2, row.line.inner_r2)),
        ("R² of inner pores: straight line", lambda row: _high(row.line.inner_r2, row.model.inner_r2)),
        ("mean error: model", lambda row: _low(row.model.mean_error, row.line.mean_error, percent)),
        ("mean error: straight line", lambda row: _low(row.line.mean_error, row.model.mean_error, percent)),
        ("mean error: mean", lambda row: ("", percent(row.mean.mean_error))),
        ("squared error, share of the straight line's", lambda row: ("", _share(row.model.mse, row.line.mse))),
        ("networks where the model is better", lambda row: ("", f"{row.wins:,} of {row.networks:,}")),
    ]
    return _table("Accuracy by size of the network", columns, rows)


def solver_table(rows: Sequence[SizeRow]) -> str:
    columns: list[Column] = [
        ("mean squared error", lambda row: ("", number(row.model.mse))),
        ("largest error", lambda row: ("", percent(row.largest_error))),
        ("iterations, at most", lambda row: ("", f"{row.iterations:,}")),
        ("error of the fixed point, at most", lambda row: ("", number(row.worst_bound, up=True))),
        ("networks that converged", _converged),
        ("time: model", lambda row: _low(row.seconds, row.exact_seconds, duration)),
        ("time: exact solve", lambda row: _low(row.exact_seconds, row.seconds, duration)),
    ]
    return _table("Convergence and time by size of the network", columns, rows)


def _high(value: float, other: float) -> Cell:
    return ("best" if value > other else ""), fixed(value, 3)


def _low(value: float, other: float, words: Callable[[float], str]) -> Cell:
    return ("best" if value < other else ""), words(value)


def _share(value: float, of: float) -> str:
    return f"{fixed(100 * value / of, 0)} %" if of > 0 else "–"


def _converged(row: SizeRow) -> Cell:
    everything = row.converged == row.networks
    return ("", f"all {row.networks:,}") if everything else ("warn", f"{row.converged:,} of {row.networks:,}")


def _table(label: str, columns: Sequence[Column], rows: Sequence[SizeRow]) -> str:
    """One line per size; a narrow screen shows each line as a block, with the names of the columns beside the cells.

    Roles are written out, because browsers drop those of table elements that are laid out as blocks.
    """
    names = ["pores", *(name for name, _ in columns)]
    head = "".join(f'<th role="columnheader" scope="col">{escape(name)}</th>' for name in names)
    body = "\n".join(_line(columns, row) for row in rows)
    return (
        f'<table role="table" class="sizes" aria-label="{escape(label)}">\n'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>\n<tbody role="rowgroup">\n{body}\n</tbody>\n</table>'
    )


def _line(columns: Sequence[Column], row: SizeRow) -> str:
    cells = [f'<th role="rowheader" scope="row" data-name="pores">{row.nodes:,}</th>']
    for name, cell in columns:
        mark, words = cell(row)
        look = f' class="{mark}"' if mark else ""
        cells.append(f'<td role="cell" data-name="{escape(name)}"{look}><span>{escape(words)}</span></td>')
    return f'<tr role="row">{"".join(cells)}</tr>'
