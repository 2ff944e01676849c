"""The tables of the page on the paper's experiments, in Markdown: each from one table of results, empty where there is nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from convergent.experiments.printed import CLASSIFICATION, GRID, SETS, Cell
from convergent.report.page import number

Table = Mapping[str, Any]
Printed = Mapping[str, Sequence[Cell]]

GIBIBYTE = 2**30
NONE = "–"
DIFFERENCE = "Difference: ours minus the paper's, in units of the paper's standard deviation."
MEASURES = {"mape": "Mean absolute percentage error", "policy_accuracy": "Policy accuracy"}
CEILING = (
    "**Upper bound on the accuracy**: a network that passes messages gives the same answer for graphs that colour refinement "
    "cannot distinguish, also where their labels differ; the bound for test graphs uses their labels"
)
PROCEDURES = {
    "A": "One evaluation step for all folds, the best on average (A)",
    "B": "The best evaluation step of each fold (B)",
}


# --- by kind of table ---


def value_iteration(table: Table, printed: Mapping[str, Mapping[str, Sequence[Cell]]]) -> str:
    """One comparison per measure, and what the models are made of."""
    columns, rows = [tuple(column) for column in table.get("columns", ())], table.get("rows", {})
    heads = [f"{states}, {actions}" for states, actions in columns]
    parts = []
    for measure, words in MEASURES.items():
        ours = {model: row[measure] for model, row in rows.items() if any(row.get(measure) or ())}
        theirs = {model: at_columns(row[measure], columns) for model, row in printed.items() if measure in row}
        if ours:
            parts.append(f"**{words}** (columns: states, actions)\n\n{comparison(heads, ours, theirs)}")
    sizes = [f"{model} {row['parameters']:,}" for model, row in rows.items() if row.get("parameters")]
    return "\n\n".join([*parts, *([f"Parameters: {', '.join(sizes)}."] if sizes else [])])


def classification(table: Table) -> str:
    """Both procedures beside the paper; then what they give with one evaluation an epoch."""
    parts = []
    for procedure, words in PROCEDURES.items():
        found = table.get(procedure) or {}
        columns, rows = found.get("columns") or [], present(found.get("rows") or {})
        if not rows:
            continue
        known = {model: dict(zip(SETS, cells, strict=True)) for model, cells in CLASSIFICATION[procedure].items()}
        theirs = {model: [cells.get(column) for column in columns] for model, cells in known.items()}
        parts.append(f"**{words}**, accuracy in per cent\n\n{comparison(columns, rows, theirs, digits=1)}")
    for procedure in PROCEDURES:
        found = table.get(procedure) or {}
        if rows := present(found.get("by_epoch") or {}):
            parts.append(f"**The same with one evaluation an epoch ({procedure})**\n\n{_cells(found['columns'], rows)}")
    if ceiling := {name: limit for name, limit in (table.get("ceiling") or {}).items() if limit}:
        rows = {f"{part} graphs": [limit[part] for limit in ceiling.values()] for part in ("train", "test")}
        parts.append(f"{CEILING}\n\n{_cells(list(ceiling), rows)}")
    return "\n\n".join(parts)


def tuning(table: Table) -> str:
    """Settings by set and procedure, and which of them were chosen."""
    columns, rows = table.get("columns"), present(table.get("rows") or {})
    if not rows or not columns:
        return ""
    chosen = "; ".join(f"{name}: {label}" for name, label in table.get("chosen", {}).items())
    return f"Accuracy in per cent.\n\n{_cells(columns, rows)}" + (f"\n\nChosen: {chosen}." if chosen else "")


def present(rows: Printed) -> dict[str, Sequence[Cell]]:
    """Without the rows of which there is nothing yet."""
    return {model: cells for model, cells in rows.items() if any(cells)}


def _cells(columns: Sequence[str], rows: Printed) -> str:
    return grid(["", *columns], [[name, *(_moments(cell, 1) for cell in cells)] for name, cells in rows.items()])


def by_size(table: Table, measure: str, what: str, scale: float = 1) -> str:
    """Means and standard deviations against a size; the paper prints no numbers for its figures."""
    rows = {model: row[measure] for model, row in table.get("rows", {}).items() if row.get(measure)}
    if not rows:
        return ""
    body = [[model, *(_moments(_scaled(cell, scale), 2) for cell in cells)] for model, cells in rows.items()]
    return grid([what, *(f"{size:,}" for size in table.get("sizes", ()))], body)


def _scaled(cell: Cell, scale: float) -> Cell:
    return cell and [None if value is None else scale * value for value in cell]


def runtime(table: Table) -> str:
    rows, sizes = table.get("rows", {}), table.get("sizes", ())
    if not rows or not sizes:
        return ""
    limits = {"memory": f"over {memory_words(table.get('memory_limit'))}", "time": f"over {table.get('most_seconds', 0):g} s"}
    asked = table.get("repeats", 0)

    def row(where: int, size: int) -> list[str]:
        return [f"{size:,}", *(_timed(each, where, size, asked, limits) for each in rows.values())]

    about = [f"{table[name]:g} {name}" for name in ("heads", "actions", "threads") if name in table]
    settings = ", ".join([*about, f"gamma {table.get('gamma', NONE)}"])
    words = f"{settings}: the median time of {asked} repeats, or of as many as are given, and the peak memory."
    load = f" The load of the machine was up to {table['load']}." if "load" in table else ""
    return f"{words}{load}\n\n" + grid(["states", *rows], [row(where, size) for where, size in enumerate(sizes)])


def complexity(table: Table) -> str:
    """A row per tolerance: the gradients are solved equally closely in it."""
    rows = {name: row for name, row in table.get("rows", {}).items() if row.get("iterations")}
    if not rows:
        return ""
    heads = ["iterations", *(f"{name}: {what}" for name in rows for what in ("saved", "peak"))]
    first = next(iter(rows.values()))
    body = [
        [f"{count:,}", *(memory_words(row.get(column, [])[where]) for row in rows.values() for column in ("saved", "peak"))]
        for where, count in enumerate(first["iterations"])
    ]
    return grid(heads, body)


# --- what they are made of ---


def at_columns(cells: Sequence[Cell], columns: Sequence[tuple[int, ...]]) -> list[Cell]:
    """Of a printed row on value iteration, the cells of these (states, actions)."""
    known = dict(zip(GRID, cells, strict=False))
    return [known.get((column[0], column[1])) for column in columns]


def comparison(heads: Sequence[str], ours: Printed, printed: Printed, digits: int = 2) -> str:
    """Three lines per model: ours, the paper's, the difference; one where only one of the two has the model."""
    body = []
    for model in [*ours, *(name for name in printed if name not in ours)]:
        lines = {}
        if model in ours:
            lines["ours"] = [_moments(cell, digits) for cell in ours[model]]
        if any(printed.get(model, ())):
            lines["paper"] = [_moments(cell, digits) for cell in printed[model]]
        if len(lines) == 2:
            lines["difference"] = [_difference(mine, theirs) for mine, theirs in zip(ours[model], printed[model], strict=False)]
        body += [["" if index else f"**{model}**", name, *cells] for index, (name, cells) in enumerate(lines.items())]
    return f"{grid(['', '', *heads], body)}\n\n{DIFFERENCE}"


def grid(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; a bar within a cell would end it."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(heads), line(["---"] * len(heads)), *map(line, body)])


def _moments(cell: Cell, digits: int | None = None) -> str:
    """Mean ± standard deviation; ``digits`` after the point, or as many as the size calls for."""
    if not cell or cell[0] is None:
        return NONE
    mean, std = (*cell, None)[:2]
    said = [
        number(value) if digits is None else f"{value:.{digits}f}".replace("-", "−") for value in (mean, std) if value is not None
    ]
    return " ± ".join(said)


def times(value: float | None) -> str:
    """A ratio with about three digits: 0.75, 9.22, 31.3, 6,936."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def listed(items: Iterable[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last


def bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items if item)


def _difference(ours: Cell, printed: Cell) -> str:
    if not ours or ours[0] is None or not printed or printed[0] is None or not printed[1]:
        return NONE
    return f"{(ours[0] - printed[0]) / printed[1]:+.1f} σ".replace("-", "−")


def _timed(row: Mapping[str, Any], where: int, size: int, asked: int, limits: Mapping[str, str]) -> str:
    median, stopped = row["median"][where], row.get("stopped") or {}
    if median is None:
        return limits.get(stopped.get("by", ""), NONE) if stopped.get("at") == size else NONE
    times = row["repeats"][where]
    return f"{time_words(median)}, {memory_words(row['memory'][where])}" + ("" if times == asked else f" ({times} times)")


def time_words(value: float) -> str:
    scale, unit = (1, "s") if value >= 1 else (1e3, "ms") if value >= 1e-3 else (1e6, "µs")
    return f"{value * scale:.3g} {unit}"


def memory_words(value: int | None) -> str:
    if value is None:
        return NONE
    scale, unit = (GIBIBYTE, "GiB") if value >= GIBIBYTE else (2**20, "MiB") if value >= 2**20 else (2**10, "KiB")
    return f"{value / scale:.3g} {unit}"
