"""The sections on the CPU: a whole layer, one product, growth and a training step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.page.reports import Case, Report, cases, detail, median, peers, ratio
from benchmarks.page.targets import missed, wanted
from benchmarks.page.words import columns, explanation, problem
from convergent.report.reproduction_tables import NONE, grid, memory_words, time_words, times

DENSE, INDEX_ADD = "dense (paper)", "index_add"
LABELS = {
    INDEX_ADD: "gather + `index_add`, our stopping rule",
    "torch.linalg.solve": "`torch.linalg.solve`, graphs padded",
    "TorchDEQ fixed point": "TorchDEQ, fixed point",
    "TorchDEQ Anderson": "TorchDEQ, Anderson with its default ridge",
    "TorchDEQ Anderson, tuned": "TorchDEQ, Anderson with the ridge tuned for float32",
    DENSE: "the paper's dense code",
}


# --- a whole layer ---


def layer(report: Report) -> str:
    every = list(cases(report))
    if not every:
        return ""
    settings = every[0]["settings"]
    words = (
        f"One forward and backward pass through autograd: {settings['graphs']:,} graphs with {problem(every[0])} together, "
        f"{settings['dtype']}. Cells: how many times as long it takes as convergent, and its time. An error of the answer above "
        f"{settings['tol']:g}, which is what convergent certifies, is given as well."
    )
    return f"{words}\n\n{layer_table(every)}"


def layer_table(every: list[Case]) -> str:
    heads = [f"contraction {case['settings']['gamma']:g}" for case in every]
    names = dict.fromkeys(name for case in every for name in peers(case))
    rows = {"**convergent**": [own_cell(case) for case in every]}
    rows |= {LABELS.get(name, name): [peer_cell(case, name) for case in every] for name in names}
    return grid(*columns(heads, rows))


def own_cell(case: Case) -> str:
    found = detail(case, case["ours"])
    about = [f"{found['method']}, {found['iterations']} steps"] if "method" in found else []
    about += [f"certified to {found['certified']:.2e}"] if "certified" in found else []
    return f"{time_words(case['timings'][case['ours']]['median'])} ({'; '.join(about)})"


def peer_cell(case: Case, name: str) -> str:
    time = median(case, name)
    if time is None:
        return NONE
    error = case["errors"].get(name, {}).get("value")  # of an answer; a training step has others
    above = f", error {error:.0e}" if error is not None and error > case["settings"]["tol"] else ""
    return f"{times(ratio(case, name))} ({time_words(time)}{above})"


def layer_memory(report: Report) -> str:
    found = next((case["measured"] for case in cases(report) if case["measured"].get("memory_ratio")), None)
    if found is None:
        return ""
    mine, theirs = memory_words(found["memory_bytes"]), memory_words(found["memory_bytes_dense"])
    return f"Peak memory: {mine}; the paper's dense code takes {theirs}, {times(found['memory_ratio'])} times as much."


def layer_explanation(report: Report) -> str:
    if not missed(report):
        return ""
    return explanation(
        "the targets against other sparse code are missed because steps run at the pace of the first caches, and because of "
        "the passes in float64, without which answers in float32 could not be certified to the tolerance."
    )


# --- one product ---

KINDS = {
    "product": "One product W x + b",
    "iteration": "One iteration, with the largest step of every head",
    "transpose": "One product with the transpose",
    "edge gradient": "The gradient of the weights, u_i x_j on every edge",
}
TRIAD = "STREAM triad"


def products(report: Report) -> str:
    """A table per kind of work: how many times as long as convergent the others take."""
    parts = ["How many times as long as convergent the others take on random graphs; in brackets the time of convergent."]
    for kind, words in KINDS.items():
        every = [case for case in cases(report) if case["name"].endswith(f" {kind}")]
        if not every:
            continue
        names = dict.fromkeys(name for case in every for name in peers(case) if name != TRIAD)
        rows = {name: [times(ratio(case, name)) for case in every] for name in names}
        heads = [
            f"{case['name'].split()[0]}: {problem(case)} ({time_words(case['timings'][case['ours']]['median'])})" for case in every
        ]
        parts.append(f"**{words}**\n\n{grid(*columns(heads, rows))}")
    return "\n\n".join(parts)


def triad(report: Report) -> str:
    lines = []
    for case in cases(report):
        found = case["measured"]
        if "fraction_of_triad" not in found:
            continue
        lines.append(
            f"- {case['name']}: {found['gb_per_s']:.1f} GB/s, {found['fraction_of_triad']:.2f} of the STREAM triad measured in "
            f"the same run ({found['gb_per_s_triad']:.1f} GB/s).{beyond(report, case)}"
        )
    return "\n".join(lines)


def beyond(report: Report, case: Case) -> str:
    """Whether a product at the full bandwidth of the triad would meet the target against index_add."""
    goal, found = wanted(report, f"{case['name']}, {INDEX_ADD} over ours"), ratio(case, INDEX_ADD)
    if goal is None or found is None:
        return ""
    best = found / case["measured"]["fraction_of_triad"]
    if found >= goal or best >= goal:
        return ""
    return (
        f" At the whole bandwidth of the triad `{INDEX_ADD}` would take {times(best)} times as long as convergent: "
        f"the target of {goal:g} is beyond the memory of this machine."
    )


# --- growth ---


def growth(report: Report) -> str:
    every = list(cases(report))
    if not every:
        return ""
    settings = report["settings"]
    words = (
        f"Random graphs with {settings['degree']} edges a node and {settings['heads']} heads at a contraction of "
        f"{settings['gamma']:g}: a solve to {settings['tol']:g}, and one product (sweep). The slope is that of the logarithm of "
        "the time over the logarithm of the number of edges: 1 is linear."
    )
    return f"{words}\n\n{growth_table(every, settings)}"


def growth_table(every: list[Case], settings: Mapping[str, Any]) -> str:
    """Times and slopes by size; also that of a GPU."""
    names = list(every[0]["timings"])
    between = {name: settings.get(f"slopes between sizes, {name}") or [] for name in names}
    heads = ["edges", *names, *(f"slope from the last size, {name}" for name in names)]
    body = []
    for place, case in enumerate(every):
        where = place - (len(every) - len(next(iter(between.values()))))  # the first sizes may take no part
        slopes = [f"{between[name][where]:.2f}" if 0 <= where < len(between[name]) else NONE for name in names]
        time = [NONE if (value := median(case, name)) is None else time_words(value) for name in names]
        body.append([f"{case['settings']['edges']:,}", *time, *slopes])
    return grid(heads, body)


# --- a training step ---


def step(report: Report) -> str:
    """Whole steps beside their peers, then what a step is made of."""
    parts = [
        "Forward, loss, backward and Adam; network and data are the same for all, only the fixed point is computed differently. "
        "Cells: how many times as long as convergent, and the time of a step."
    ]
    parts += [parts_of_step(case) if "share_of_solves" in case["measured"] else whole_step(case) for case in cases(report)]
    return "\n\n".join(parts)


def whole_step(case: Case) -> str:
    rows = {"**convergent**": [f"1 ({time_words(case['timings'][case['ours']]['median'])})"]}
    rows |= {LABELS.get(name, name): [peer_cell(case, name)] for name in peers(case)}
    return grid(*columns([f"{case['name']}: {problem(case)}"], rows)) + pace(case)


def pace(case: Case) -> str:
    found = case["measured"]
    if "steps_per_second" not in found:
        return ""
    with_data = found.get("steps_per_second_with_data")
    data = f", {with_data:.1f} with the making of new graphs" if with_data else ""
    return f"\n\n{found['steps_per_second']:.1f} steps a second{data}."


def parts_of_step(case: Case) -> str:
    shares = [(name, value) for name in peers(case) if (value := ratio(case, name)) is not None]
    body = [[name, time_words(median(case, name) or 0), f"{100 * share:.1f} %"] for name, share in shares]
    words = f"The solves, forward and backward, are {100 * case['measured']['share_of_solves']:.1f} % of the step."
    return f"**{case['name']}**\n\n{grid(['part', 'time', 'share'], body)}\n\n{words}"
