"""The sections on a GPU: one part of the benchmark cuda each, and the tests that ran there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.page.cpu import INDEX_ADD, LABELS, growth_table, own_cell, peer_cell
from benchmarks.page.reports import Case, Report, cases, detail, median, peers, ratio
from benchmarks.page.targets import missed, wanted
from benchmarks.page.words import columns, explanation, problem, tidy
from convergent.report.reproduction_tables import NONE, bullets, grid, listed, memory_words, time_words, times

PRODUCT, HALVED, SPARSE, COPY = "product", "product, bfloat16 weights", "cuSPARSE, head by head", "copy"
REPLAYED_LAYER, REPLAYED_STEP = "convergent, in a CUDA graph", "convergent, replayed"
KINDS = {"local": "Neighbours close by", "random": "Neighbours anywhere"}


# --- one iteration ---


def iteration(report: Report) -> str:
    every = list(cases(report, "iteration,"))
    if not every:
        return ""
    first, settings = every[0], report["settings"]["iteration"]
    copy = 8 * settings["copied_numbers"] / first["timings"][COPY]["median"] / 1e12
    words = (
        f"x <- W x + b in {first['settings']['dtype']} on {first['settings']['nodes']:,} nodes with "
        f"{first['settings']['edges']:,} edges, with the length of the step (the residual) as often as a solve takes it. "
        f"The fraction is that of the copy bandwidth, {copy:.2f} TB/s in the same run, by the bytes that have to be moved at the "
        "least; in brackets that of the product alone, without any residual."
    )
    return f"### One iteration\n\n{words}"


def iteration_tables(report: Report) -> str:
    parts = []
    for kind, words in KINDS.items():
        every = list(cases(report, f"iteration, {kind},"))
        if every:
            heads = [tidy(f"{case['settings']['heads']} heads") for case in every]
            parts.append(f"**{words}**\n\n{grid(*columns(heads, iteration_rows(every)))}")
    return "\n\n".join(parts)


def iteration_rows(every: Sequence[Case]) -> dict[str, list[str]]:
    fraction = "fraction of the copy (without residual)"
    rows = {
        "time of an iteration": [time_words(case["timings"][case["ours"]]["median"]) for case in every],
        fraction: [fractions(case["measured"]) for case in every],
        "`index_add` with its residual, times as long": [times(ratio(case, INDEX_ADD)) for case in every],
        "cuSPARSE's `W x` head by head over our `W x + b`": [times(ratio(case, SPARSE, PRODUCT)) for case in every],
        "our `W x + b` over the same with bfloat16 weights": [times(inverse(ratio(case, HALVED, PRODUCT))) for case in every],
    }
    return {name: cells for name, cells in rows.items() if set(cells) != {NONE}}


def fractions(measured: Mapping[str, Any]) -> str:
    return f"{measured['fraction_of_copy']:.2f} ({measured['fraction_of_copy_product']:.2f})"


def inverse(value: float | None) -> float | None:
    return None if value is None else 1 / value


def iteration_misses(report: Report) -> str:
    """Of every fraction that is too small: whether the product alone reaches it, and what gathers move."""
    lines = []
    for case in cases(report, "iteration,"):
        found, name = case["measured"], f"{case['name']}: fraction of the copy"
        goal = wanted(report, name)
        if goal is None or not missed(report, name):
            continue
        alone = "reaches" if found["fraction_of_copy_product"] >= goal else "does not reach"
        line = f"{tidy(case['name'])}: {found['fraction_of_copy']:.3f}, wanted {goal:g}; the product without residual {alone} it"
        if found.get("gather_bytes", 0) > found["bytes"]:
            over = found["gather_bytes"] / found["bytes"]
            line += f", and the gathers alone move up to {over:.1f} times the bytes that count here, if no cache helps"
        lines.append(line + ".")
    return f"Fractions below their target:\n\n{bullets(lines)}" if lines else ""


# --- a layer and a training step ---


def layer(report: Report) -> str:
    case = next(cases(report, "W1,"), None)
    if case is None:
        return ""
    heads = ["called from Python", "times as long", "times as long as ours in a CUDA graph"]
    body = [["**convergent**", own_cell(case), "1", times(inverse(ratio(case, REPLAYED_LAYER)))]]
    for name in peers(case):
        replayed = times(ratio(case, name, REPLAYED_LAYER)) if name != REPLAYED_LAYER else "1"
        time = peer_cell(case, name).partition(" (")[2].removesuffix(")")
        body.append([LABELS.get(name, name), time, times(ratio(case, name)), replayed])
    words = (
        f"Forward and backward of {case['settings']['graphs']:,} graphs with {problem(case)} together at a contraction of "
        f"{case['settings']['gamma']:g}. In a CUDA graph a solve looks at nothing on the host."
    )
    return f"### A whole layer\n\n{words}\n\n{grid(['', *heads], body)}\n\n{layer_explanation(report)}".rstrip()


def layer_explanation(report: Report) -> str:
    if not missed(report, "W1: "):
        return ""
    return explanation("called from Python the layer is limited by Python and autograd, which a CUDA graph does without.")


def training(report: Report) -> str:
    case = next((case for case in cases(report) if "steps_per_second_of_a_run" in case["measured"]), None)
    if case is None:
        return ""
    names = [name for name in case["timings"] if name != REPLAYED_STEP]
    rows = [["**convergent**, captured once and replayed", step_time(case, REPLAYED_STEP), "1"]]
    for name in names:
        label = "convergent, called from Python" if name == case["ours"] else LABELS.get(name, name)
        rows.append([label, step_time(case, name), times(ratio(case, name, REPLAYED_STEP))])
    found = case["measured"]
    pace = (
        f"{found['steps_per_second_replayed']:.0f} steps a second are replayed one after the other. A whole run "
        f"(`convergent train --device cuda`) makes {found['steps_per_second_of_a_run']:.0f} a second with everything around them"
    )
    busy = found.get("share_busy_in_a_run")
    pace += f", and some kernel runs {100 * busy:.0f} % of the time." if busy else "."
    table = grid(["", "time of a step", "times as long as replayed"], rows)
    return f"### A training step\n\n{case['name']}: {problem(case)}.\n\n{table}\n\n{pace}"


def step_time(case: Case, name: str) -> str:
    value = median(case, name)
    return NONE if value is None else time_words(value)


# --- a large graph, growth ---


def large(report: Report) -> str:
    case = next(cases(report, "large,"), None)
    if case is None:
        return ""
    found = case["measured"]
    body = []
    for name in case["timings"]:
        most, least, over = (found.get(f"{name}: {what}") for what in ("memory", "minimum", "memory over minimum"))
        memory = [memory_words(most), memory_words(least), f"{over:.2f}" if over else NONE]
        body.append([name, step_time(case, name), *memory])
    table = grid(["", "time", "peak memory", "the least it can be", "ratio"], body)
    return "\n\n".join(["### A large graph", f"{problem(case)}.", table, exactness(case)]).rstrip()


def exactness(case: Case) -> str:
    errors: Mapping[str, float] = next(iter(case["errors"].values()), {})
    if "certified_bound" not in errors:
        return ""
    return (
        f"Certified to {errors['certified_bound']:.1e}; the bound from a residual computed without the library, in float64, is "
        f"{errors['true_bound']:.1e}. The least memory is that of weights, their gradient, indices and vectors."
    )


def growth(report: Report) -> str:
    every, settings = list(cases(report, "growth,")), report["settings"].get("growth")
    if not every or not settings:
        return ""
    slopes = {target["name"].rpartition(", ")[2]: target["value"] for target in report["targets"] if "slope" in target["name"]}
    said = listed(f"{value:.2f} ({name})" for name, value in slopes.items() if value is not None) if any(slopes.values()) else NONE
    words = f"Slope of the logarithm of the time over that of the edges, from {settings['slope_from']:,} edges on: {said}."
    small = explanation("a slope below 1 comes from the launches, which still count at the small end.")
    return f"### Growth\n\n{words}\n\n{growth_table(every, settings)}\n\n{small}"


# --- the choice of a method ---


def methods(report: Report) -> str:
    every = list(cases(report, "methods,"))
    if not every:
        return ""
    gammas = list(dict.fromkeys(case["settings"]["gamma"] for case in every))
    rows: dict[str, dict[float, str]] = {}
    for case in every:
        name = case["name"].removeprefix("methods, ").rpartition(", gamma ")[0]
        rows.setdefault(name, {})[case["settings"]["gamma"]] = choice(case)
    body = [[name, *(cells.get(gamma, NONE) for gamma in gammas)] for name, cells in rows.items()]
    worst = max((case["measured"].get("auto_over_fastest") or 0 for case in every), default=0)
    words = (
        f"`Auto` against each method on its own, {len(every)} problems, to a relative error of "
        f"{report['settings']['methods']['rtol']:g}. Cells: time of `Auto` and what it chose; where another method reaches the "
        f"error faster, how many times as long as that `Auto` takes ({worst:.2f} at worst)."
    )
    return f"### The choice of a method\n\n{words}\n\n{grid(['', *(f'contraction {gamma:g}' for gamma in gammas)], body)}"


def choice(case: Case) -> str:
    over, fastest, time = case["measured"].get("auto_over_fastest"), case["measured"].get("fastest"), median(case, "Auto")
    if time is None:
        return NONE
    chosen = f"{time_words(time)} ({detail(case, 'Auto').get('method', NONE)})"
    if over is None:
        return f"{chosen}, error not reached"
    return chosen if fastest == "Auto" else f"{chosen}, {over:.2f} times {fastest}"


# --- tests ---


def tests(report: Report) -> str:
    total, passed = sum(report["outcomes"].values()), report["outcomes"].get("passed", 0)
    words = f"The tests that need a GPU: {passed} of {total} passed."
    if report["not_passed"]:
        words += f" Not passed: {listed(f'`{name}`' for name in report['not_passed'])}."
    return f"{words} {memcheck(report['memcheck'])}"


def memcheck(found: Mapping[str, Any]) -> str:
    if "skipped" in found:
        return f"Not run under compute-sanitizer's memcheck: {found['skipped']}."
    said = " ".join([*found.get("tests", ()), "with", *found.get("errors", ())])
    return f"A part of them once more under compute-sanitizer's memcheck: {said}."
