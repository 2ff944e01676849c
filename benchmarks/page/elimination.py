"""The sections on rows that sum to almost one: solvers with gradients side by side, and backward over forward."""

from __future__ import annotations

from benchmarks.page.near_one import NOT_REACHED, cell, named
from benchmarks.page.reports import Case, Report, cases, detail, median, peers, ratio
from benchmarks.page.words import columns, tidy
from convergent.report.reproduction_tables import NONE, bullets, grid, time_words, times

SOLVE = "solve"
NOT_COMPARED = ("solve, forward", "spsolve, forward", "elimination alone", "symbolic step")  # one pass, or a part of ours
FORWARD, BACKWARD = "forward", "backward"


def elimination(report: Report) -> str:
    every = [case for case in cases(report) if case["ours"] == SOLVE]
    if not every:
        return ""
    names = list(dict.fromkeys(name for case in every for name in peers(case) if name not in NOT_COMPARED))
    rows = {named(case): [own_time(case), *(cell(case, name) for name in names)] for case in every}
    return "\n\n".join(
        [
            "Forward and backward, float64: the time of `solve` with `Auto`, and how many times as long the others take.",
            grid(*columns(["convergent", *names], rows)),
            reading(report),
        ]
    )


def own_time(case: Case) -> str:
    time, method = median(case, SOLVE), detail(case, SOLVE).get("method")
    return NONE if time is None else time_words(time) + (f" ({method})" if method else "")


def reading(report: Report) -> str:
    settings = report["settings"]
    return bullets(
        [
            "Iterative peers get the loosest tolerance with which answer and gradient have an error of at most "
            f"{settings['rtol']:g}, relative to the largest entry, which is what ours is asked to certify; **{NOT_REACHED}**: not "
            "reached. Direct ones end where rounding leaves them.",
            f"Rows of pore networks sum to 1 − {settings['timed_at_loss']:g}, but for pinned pores.",
            "Peers are given what depends on the graph alone, as ours is: the order of entries, not an ordering of the factors, "
            "which they have no way to keep.",
            "splu alone (graph by graph) has no autograd: it factorises once and solves three times.",
        ]
    )


def adjoint(report: Report) -> str:
    """Both passes of every problem."""
    rows = {}
    for case in cases(report):
        forward, backward = median(case, FORWARD), median(case, BACKWARD)
        both = [NONE if time is None else time_words(time) for time in (forward, backward)]
        rows[tidy(case["name"])] = [*both, times(ratio(case, BACKWARD)), str(detail(case, FORWARD).get("method", NONE))]
    heads = ["forward", "backward", "backward over forward", "what Auto chose"]
    return grid(*columns(heads, rows)) if rows else ""
