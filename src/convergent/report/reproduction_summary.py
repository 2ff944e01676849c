"""The top of the page on the paper's experiments: what came out, in one screen. Small budgets say nothing and are left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from convergent.experiments.printed import CLASSIFICATION, SETS, VALUE_ITERATION, Cell
from convergent.report.reproduction_tables import NONE, at_columns, bullets, grid, listed, memory_words, time_words, times

Reports = Mapping[str, Mapping[str, Any]]
Table = Mapping[str, Any]
Means = list[float | None]

HEADING = "## In short"
HOLDS, FAILS = "✓", "✗"
# The claim, its file, and pairs of rows of which the first is to have the smaller error.
ABLATIONS = (
    (
        "A bias that depends on the input is better than a fixed one",
        "ablation-fixed-bias",
        tuple((f"CGS({heads})", f"Fixed B CGS({heads})") for heads in (16, 32, 64)),
    ),
    (
        "Two, three and four layers of the encoder are better than one",
        "ablation-layers",
        tuple((f"{layers}-CGS(16)", "1-CGS(16)") for layers in (2, 3, 4)),
    ),
    ("A contraction of 0.7 is better than 0.5", "ablation-gamma", (("gamma=0.7", "gamma=0.5"),)),
    ("A contraction of 0.5 is better than 0.3", "ablation-gamma", (("gamma=0.5", "gamma=0.3"),)),
    (
        "A linear map is better than one with an activation",
        "ablation-nonlinear",
        tuple((f"CGS({heads})", f"nl-CGS({heads})") for heads in (8, 16, 32, 64)),
    ),
)
DENSE, AUTO = ("dense inverse (paper)", "dense iteration (paper)"), "Auto"
# What is known of results and not in them, by their commits; gone when they are run again.
REMARKS = {
    ("8bc417be4fd5984328addeb8cc4a5fd0ee4e506e", "e37e0c175061ba3e55a04c04d8fe3a6f0d4afb75"): "The runs on the GPU are older than "
    "solves of large graphs that decide on the host when to stop.",
}


def summary(reports: Reports) -> str:
    """A paragraph for every subject of which there are results; empty where there are none."""
    full = {name: report for name, report in reports.items() if not report.get("quick")}
    tables = {name: report.get("table") or {} for name, report in full.items()}
    parts = [
        value_iteration(tables.get("value-iteration", {})),
        ablations(tables),
        pore_networks(tables.get("pore-networks", {})),
        classification(tables.get("classification", {}), tables.get("classification-tuning", {})),
        runtime(full),
        complexity(tables.get("complexity", {})),
    ]
    found = list(filter(None, parts))
    return "\n\n".join([HEADING, *found]) if found else ""


# --- value iteration ---


def value_iteration(table: Table) -> str:
    columns, rows = [tuple(column) for column in table.get("columns", ())], table.get("rows") or {}
    printed = {model: at_columns(row["mape"], columns) for model, row in VALUE_ITERATION["value-iteration"].items()}
    ours = {model: _means(rows[model].get("mape")) for model in printed if model in rows}
    theirs = {model: _means(printed[model]) for model in ours}
    shown = [*(model for model in ours if model.startswith("CGS")), *({"IGNN"} & ours.keys())]
    if not shown:
        return ""
    heads = ["states, actions", *(f"{states}, {actions}" for states, actions in columns)]
    body = [[model, *map(_beside, ours[model], theirs[model])] for model in shown]
    words = [_at_or_below(rows, columns), _far_behind(ours, theirs), _bounded(rows, printed, columns)]
    intro = "**Value iteration** (Table 1): error of the values in %, in brackets the paper's."
    return f"{intro}\n\n{grid(heads, body)}\n\n{' '.join(filter(None, words))}".rstrip()


def _beside(ours: float | None, theirs: float | None) -> str:
    return f"{_fixed(ours)} ({_fixed(theirs)})"


def _fixed(value: float | None, digits: int = 2) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def _at_or_below(rows: Table, columns: Sequence[tuple[int, ...]]) -> str:
    """In how many cells CGS has at most the error, and at least the accuracy, that is printed."""
    said = []
    for measure, sign, words in (("mape", 1, "at or below the paper's error"), ("policy_accuracy", -1, "at or above its accuracy")):
        pairs = [
            pair
            for model, row in VALUE_ITERATION["value-iteration"].items()
            if model.startswith("CGS") and model in rows
            for pair in _both(_means(rows[model].get(measure)), _means(at_columns(row[measure], columns)))
        ]
        if pairs:
            said.append(f"{words} in {sum(sign * ours <= sign * theirs for ours, theirs in pairs)} of {len(pairs)} cells")
    return f"CGS is {listed(said)}." if said else ""


def _far_behind(ours: Mapping[str, Means], theirs: Mapping[str, Means]) -> str:
    """How many times the error of the best CGS that of IGNN is, here and in the paper."""
    said = [_range(_both(rows.get("IGNN", []), _smallest(rows))) for rows in (ours, theirs)]
    if not all(said):
        return ""
    return f"IGNN, which converges here, has {said[0]} times the error of the best CGS; in the paper {said[1]} times."


def _bounded(rows: Table, printed: Mapping[str, Sequence[Cell]], columns: Sequence[tuple[int, ...]]) -> str:
    """SSE in the column where the paper prints its largest error."""
    pairs = [
        (theirs, ours, column)
        for theirs, ours, column in zip(_means(printed["SSE"]), _means(rows.get("SSE", {}).get("mape")), columns, strict=False)
        if theirs is not None and ours is not None
    ]
    if not pairs:
        return ""
    theirs, ours, (states, actions) = max(pairs)
    words = (
        f"SSE, bounded so that it converges, has {ours:.1f} % with {states} states and {actions} actions, where the paper prints "
        f"{theirs:.1f} %."
    )
    original = rows.get("SSE, unbounded", {})
    if solves := original.get("solves"):
        graphs, failed = (sum(solve[key] for solve in solves) for key in ("graphs", "not_converged"))
        steps, error = (
            max(solve["most_iterations"] for solve in solves),
            _means(original.get("mape"))[columns.index((states, actions))],
        )
        words += f" As published it has {_fixed(error, 1)} %, and does not settle within {steps} steps on "
        words += f"{100 * failed / graphs:.0f} % of its training graphs."
    return words


# --- ablations, pore networks ---


def ablations(tables: Mapping[str, Table]) -> str:
    lines = []
    for claim, name, pairs in ABLATIONS:
        rows = (tables.get(name) or {}).get("rows") or {}
        cells = [
            pair
            for better, worse in pairs
            if better in rows and worse in rows
            for pair in _both(_means(rows[better].get("mape")), _means(rows[worse].get("mape")))
        ]
        if cells:
            wins = sum(ours < theirs for ours, theirs in cells)
            lines.append(f"{HOLDS if wins == len(cells) else FAILS} {claim}: in {wins} of {len(cells)} comparisons.")
    return f"**Ablations**, by the error in every column of Table 1\n\n{bullets(lines)}" if lines else ""


def pore_networks(table: Table) -> str:
    rows = {model: _means(row.get("mse")) for model, row in (table.get("rows") or {}).items()}
    line = rows.pop("straight line", [])
    mine = {model: values for model, values in rows.items() if model.startswith("CGS")}
    stacks = {
        model: values for model, values in rows.items() if model.startswith("GNN(") and None not in values and model != "GNN(1)"
    }
    others = ["IGNN", "SSE", "GNN(1)", *([min(stacks, key=lambda model: sum(map(_known, stacks[model])))] if stacks else [])]
    said = []
    for model in others:
        found = _range(pair for values in mine.values() for pair in _both(values, rows.get(model, [])))
        if found:
            said.append(f"{found} times that of {model}" + (" (the best stack of layers)" if model in stacks else ""))
    if not said:
        return ""
    words = f"**Pore networks.** The error of CGS, over all models and sizes, is {listed(said)}."
    return f"{words} {_straight(table, rows, line)}".rstrip()


def _straight(table: Table, rows: Mapping[str, Means], line: Means) -> str:
    """The smallest size from which on the straight line is better than every model."""
    beaten = [
        all(mine is None or value is None or value < mine for mine in others)
        for value, others in zip(line, zip(*rows.values(), strict=True), strict=False)
    ]
    first = next((place for place in range(len(beaten)) if all(beaten[place:])), None)
    if first is None:
        return ""
    return f"From {table['sizes'][first]:,} pores on a straight line from inlet to outlet is better than all of them."


# --- classification ---


def classification(table: Table, tuning: Table) -> str:
    lines = [_within(table), *_below(table), _other("GIN", table), _closest("IGNN", table), _sums(tuning)]
    found = list(filter(None, lines))
    return f"**Graph classification**, accuracy in %\n\n{bullets(found)}" if found and lines[0] else ""


def _sets(table: Table) -> Iterator[tuple[str, str, Mapping[str, Cell], Mapping[str, Cell]]]:
    """Protocol, set, our cells of it and the printed ones, both by model."""
    for protocol, models in CLASSIFICATION.items():
        found = table.get(protocol) or {}
        for place, name in enumerate(found.get("columns") or ()):
            ours = {model: row[place] for model, row in (found.get("rows") or {}).items() if row[place]}
            theirs = {model: cell for model, row in models.items() if name in SETS and (cell := row[SETS.index(name)])}
            yield protocol, name, ours, theirs


def _best(cells: Mapping[str, Cell]) -> tuple[float, float] | None:
    """Mean and deviation of the best CGS."""
    found = [(cell[0], cell[1] or 0.0) for model, cell in cells.items() if model.startswith("CGS") and cell and cell[0] is not None]
    return max(found, key=lambda cell: cell[0], default=None)


def _compared(table: Table) -> list[tuple[str, str, tuple[float, float], tuple[float, float]]]:
    return [
        (protocol, name, mine, paper)
        for protocol, name, ours, theirs in _sets(table)
        if (mine := _best(ours)) and (paper := _best(theirs))
    ]


def _within(table: Table) -> str:
    said = []
    for protocol, words in (
        ("A", "with one evaluation step for all folds (A)"),
        ("B", "with the best step of each fold (B)"),
    ):
        sets = [mine[0] >= paper[0] - paper[1] for found, _, mine, paper in _compared(table) if found == protocol]
        if sets:
            said.append(f"on {sum(sets)} of {len(sets)} sets {words}")
    return f"The best CGS is within a standard deviation of the paper's best, or above it, {listed(said)}." if said else ""


def _below(table: Table) -> Iterator[str]:
    """The sets on which it is not, with the upper bound on the accuracy in training."""
    for protocol, name, mine, paper in _compared(table):
        if mine[0] < paper[0] - paper[1]:
            limit = ((table.get("ceiling") or {}).get(name) or {}).get("train")
            yield f"{name} ({protocol}): {mine[0]:.1f}, in the paper {paper[0]:.1f} ± {paper[1]:.1f}.{_limited(limit)}"


def _limited(limit: Cell) -> str:
    if not limit:
        return ""
    return (
        f" A network that passes messages gets at most {limit[0]:.1f} ± {limit[1]:.1f} of the *training* graphs right, because "
        "equal graphs have different labels."
    )


def _other(model: str, table: Table) -> str:
    """Sets on which another model is better than the best CGS, on the same folds."""
    said: dict[str, list[str]] = {}
    for protocol, name, ours, _ in _sets(table):
        mine, other = _best(ours), ours.get(model)
        if mine and other and other[0] is not None and other[0] > mine[0]:
            said.setdefault(protocol, []).append(f"{name} ({other[0]:.1f} against {mine[0]:.1f})")
    words = "; ".join(f"{protocol}: {listed(sets)}" for protocol, sets in said.items())
    return f"{model}, run on the same folds, is better than the best CGS on some sets. {words}." if said else ""


def _closest(model: str, table: Table) -> str:
    apart = [
        abs(mine[0] - other[0])
        for _, _, ours, _ in _sets(table)
        if (mine := _best(ours)) and (other := ours.get(model)) and other[0] is not None
    ]
    return f"{model} is never more than {max(apart):.1f} points from the best CGS." if apart else ""


def _sums(tuning: Table) -> str:
    """Means over a node's edges, which were chosen, against sums, which the paper's text has."""
    rows, columns, chosen = tuning.get("rows") or {}, tuning.get("columns") or (), tuning.get("chosen") or {}
    sums = next((row for name, row in rows.items() if "sums" in name), None)
    said = []
    for place, column in enumerate(columns):
        means = rows.get(chosen.get(column.partition(",")[0], ""))
        if sums and means and sums[place] and means[place]:
            said.append(f"{sums[place][0]:.1f} instead of {means[place][0]:.1f} ({column})")
    words = "Means are taken over a node's edges, as in the published code; with sums, as in the text, CGS(4) gets"
    return f"{words} {listed(said)}." if said else ""


# --- runtime and memory ---


def runtime(reports: Reports) -> str:
    """How many times as long as Auto the faster of the paper's dense methods takes, by states."""
    found = {words: reports[name] for name, words in (("runtime", "CPU"), ("runtime-gpu", "GPU")) if _faster(reports.get(name))}
    if not found:
        return ""
    ratios = {words: _faster(report) for words, report in found.items()}
    sizes = sorted({size for row in ratios.values() for size in row})
    body = [[words, *(times(row.get(size)) for size in sizes)] for words, row in ratios.items()]
    intro = f"**Runtime.** How many times as long as `{AUTO}` the faster of the paper's two dense methods takes."
    table = grid(["states", *(f"{size:,}" for size in sizes)], body)
    lines = [line for words, report in found.items() for line in (_largest(words, report), _slower(words, report), _remark(report))]
    return f"{intro}\n\n{table}\n\n{bullets(lines)}"


def _faster(report: Mapping[str, Any] | None) -> dict[int, float]:
    table = (report or {}).get("table") or {}
    rows, found = table.get("rows") or {}, {}
    for place, size in enumerate(table.get("sizes") or ()):
        dense = [value for name in DENSE if name in rows and (value := rows[name]["median"][place]) is not None]
        auto = rows[AUTO]["median"][place] if AUTO in rows else None
        if dense and auto:
            found[size] = min(dense) / auto
    return found


def _largest(words: str, report: Mapping[str, Any]) -> str:
    table = report["table"]
    most = {
        name: max((size for size, value in zip(table["sizes"], row["median"], strict=True) if value), default=0)
        for name, row in table["rows"].items()
    }
    dense = max(most.get(name, 0) for name in DENSE)
    return f"{words}: `{AUTO}` goes on to {most[AUTO]:,} states, the dense methods to {dense:,}."


def _slower(words: str, report: Mapping[str, Any]) -> str:
    """Where a dense method is faster somewhere: the times of Auto from there on."""
    slower = [size for size, ratio in _faster(report).items() if ratio < 1]
    if not slower:
        return ""
    table = report["table"]
    seconds = [
        value for size, value in zip(table["sizes"], table["rows"][AUTO]["median"], strict=True) if size >= slower[0] and value
    ]
    return (
        f"{words}: a dense method is faster at {listed(f'{size:,}' for size in slower)} states; from {slower[0]:,} states on "
        f"`{AUTO}` takes {time_words(min(seconds))} to {time_words(max(seconds))}."
    )


def _remark(report: Mapping[str, Any]) -> str:
    return REMARKS.get(tuple(report.get("commits", ())), "")


def complexity(table: Table) -> str:
    rows = {name: row for name, row in (table.get("rows") or {}).items() if row.get("saved") and row.get("iterations")}
    said = []
    for name, row in rows.items():
        steps, saved = row["iterations"], row["saved"]
        if len(steps) > 1:
            each = (saved[-1] - saved[0]) / (steps[-1] - steps[0])
            more = f"{memory_words(round(each))} more with every iteration" if each else f"no more at {steps[-1]:,}"
            said.append(f"{name.lower()} gradients save {memory_words(saved[0])} at {steps[0]:,} iterations and {more}")
    return f"**Memory of training.** {'; '.join(said)[:1].upper()}{'; '.join(said)[1:]}." if said else ""


# --- what they are made of ---


def _means(cells: Sequence[Cell] | None) -> Means:
    return [cell[0] if cell else None for cell in cells or ()]


def _known(value: float | None) -> float:
    return value or 0.0


def _both(ours: Means, theirs: Means) -> Iterator[tuple[float, float]]:
    """The pairs of which neither is missing."""
    return ((mine, other) for mine, other in zip(ours, theirs, strict=False) if mine is not None and other is not None)


def _smallest(rows: Mapping[str, Means]) -> Means:
    """Of all CGS, in every column."""
    mine = [values for model, values in rows.items() if model.startswith("CGS")]
    return [min((value for value in column if value is not None), default=None) for column in zip(*mine, strict=False)]


def _range(pairs: Any) -> str:
    """The smallest to the largest ratio."""
    found = [f"{value:.2f}" for value in sorted(ours / theirs for ours, theirs in pairs if theirs)]
    return " to ".join(dict.fromkeys((found[0], found[-1]))) if found else ""
