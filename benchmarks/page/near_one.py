"""The section on contractions near one: the methods of convergent, and other packages on the problems with one head."""

from __future__ import annotations

from benchmarks.page.reports import Case, Report, cases, detail, median, ratio
from benchmarks.page.words import columns, tidy
from convergent.report.reproduction_tables import NONE, bullets, grid, listed, time_words, times

AUTO, BUILD = "Auto", "Graph"
OWN = {"Auto, cold": "Auto, new graph too", "Picard": "Picard", "BiCGStab": "BiCGStab", "GMRES": "GMRES", "Anderson": "Anderson"}
NO_BREAK = "\N{NO-BREAK SPACE}"  # keeps a cell on one line
NOT_REACHED, EXTRAPOLATED = "✗", "*"


def near_one(report: Report) -> str:
    every = list(cases(report))
    if not every:
        return ""
    own = {named(case): [auto_time(case), *(cell(case, name) for name in OWN), auto_method(case)] for case in every}
    names = others(every)
    single = [case for case in every if any(name in case["timings"] for name in names)]
    theirs = {named(case): [cell(case, name) for name in names] for case in single}
    parts = [
        f"How many times as long as `Auto` the others take to the same certified error of {report['settings']['tol']:g}.",
        "**Methods of convergent**",
        grid(*columns(["Auto", *OWN.values(), "what Auto chose"], own)),
    ]
    if theirs:
        parts += ["**Other packages**, which have one head and compute in float64", grid(*columns(names, theirs))]
    return "\n\n".join([*parts, reading(report), faster(every)])


def named(case: Case) -> str:
    """The problem on one line: its blanks do not break."""
    return tidy(case["name"]).replace("gamma ", "").replace(" ", NO_BREAK)


def others(every: list[Case]) -> list[str]:
    """Peers that were run at least once, in their order."""
    known = {AUTO, BUILD, *OWN}
    return list(dict.fromkeys(name for case in every for name in case["timings"] if name not in known))


def auto_time(case: Case) -> str:
    time = median(case, AUTO)
    return NONE if time is None else time_words(time).replace(" ", NO_BREAK) + mark(case, AUTO)


def auto_method(case: Case) -> str:
    found = detail(case, AUTO)
    return f"{found['method']}, {found['iterations']} steps".replace(" ", NO_BREAK) if "method" in found else NONE


def cell(case: Case, name: str) -> str:
    return NONE if median(case, name) is None else times(ratio(case, name)) + mark(case, name)


def mark(case: Case, name: str) -> str:
    found = detail(case, name)
    if found.get("extrapolated"):
        return f" {EXTRAPOLATED}"
    return f" {NOT_REACHED}" if found.get("reached") is False else ""


def reading(report: Report) -> str:
    settings = report["settings"]
    return bullets(
        [
            f"**{NOT_REACHED}** (not reached): the certified error stayed above {settings['tol']:g} in as many steps as fit in "
            f"{settings['cap']:g} s by a first estimate; other packages also ended after a few tolerances, each tighter than the "
            "last, or after that time. The ratio is that of the attempt.",
            f"**\\{EXTRAPOLATED}** (extrapolated): from the time of {settings['extrapolated_from_steps']} steps, where the steps "
            f"that the contraction calls for would take more than {settings['picard_cap']:g} s. That number of steps is an upper "
            "bound, so the ratio favours `Auto`.",
            "`Auto` gets new weights in every solve on a graph that it knows: what multigrid computes from the weights is part of "
            "its time, what depends on the graph alone is not. The column *new graph too* has that as well.",
            "Right-hand sides are scaled by 1 minus the contraction, so that float32 can hold the answers to the tolerance.",
            "Other packages stop on norms of their own. They get the loosest tolerance with which they reach the error; the time "
            "to find it is not counted.",
            "TorchDEQ's Anderson has a smaller ridge than its default, set in `benchmarks/peers/systems.py`: with the default one "
            "it did not converge here, which no file records.",
            f"{NONE}: not run. Factors and coarse matrices fill in on large random graphs.",
        ]
    )


def faster(every: list[Case]) -> str:
    """Everybody who reached the error in less time than Auto."""
    lines = []
    for case in every:
        names = [name for name in case["timings"] if name not in (AUTO, BUILD, "Auto, cold") and beats(case, name)]
        if names:
            lines.append(f"{tidy(case['name'])}: {listed(f'{name} ({times(ratio(case, name))})' for name in names)}")
    return f"Faster than `Auto` to the same error:\n\n{bullets(lines)}" if lines else "Nobody reaches the error faster than `Auto`."


def beats(case: Case, name: str) -> bool:
    found = ratio(case, name)
    return found is not None and found < 1 and detail(case, name).get("reached") is not False
