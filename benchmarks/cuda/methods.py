"""Which method is fastest where, and whether Auto picks it: a certified solve of many and of large graphs, forward only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks.cuda.clock import free, wall_time
from benchmarks.measure import Candidate, Timing, at_rest, clocked
from benchmarks.near_one import solved, with_new_weights
from benchmarks.options import Options
from benchmarks.peers.layers import steps_needed
from benchmarks.report import Case, Report, Target
from benchmarks.workloads import Workload, decision_processes, grid, random
from convergent import GMRES, Anderson, Auto, BiCGStab, Deflated, Direct, Multigrid, Picard, Solution
from convergent.solvers import Solver

AUTO = "Auto"
METHODS: dict[str, type[Solver]] = {
    AUTO: Auto,
    "Picard": Picard,
    "Deflated": Deflated,
    "Anderson": Anderson,
    "BiCGStab": BiCGStab,
    "GMRES": GMRES,
    "Multigrid": Multigrid,
    "Direct": Direct,
}
RTOL = 1e-5
DENSE = 512  # nodes of a graph above which nobody would factor it
PROBE = 8  # steps from which the time of one is known
SHORT = 0.05  # seconds of a run that is worth repeating
START = 0.5  # gamma of the workloads as they are made
WORST = "methods: Auto over the fastest, at worst"
NOTES = {
    "rtol": RTOL,
    "refine": "the answer is in float64 where rtol (1 - gamma) is below the rounding of float32, which no certificate can pass",
    "cap": "seconds: a method is given as many steps as fit in min(cap, max(floor, slack * Auto's seconds)); Picard is not run "
    "where the steps that gamma calls for do not fit",
    "weights": "new ones in every repeat, on a graph that is known: nothing is kept but what depends on the graph alone",
}


@dataclass(frozen=True)
class Limits:
    repeats: int
    cap: float  # seconds of a run
    floor: float
    slack: float  # times as long as Auto, after which a method is not the fastest
    total: float  # seconds of all of it, after which what is left is not run


def run(report: Report, options: Options) -> None:
    limits = Limits(1, 0.5, 0.02, 3.0, 60.0) if options.quick else Limits(3, 2.0, 0.02, 3.0, 90.0)
    report.settings["methods"] = {**NOTES, "limits": vars(limits), "not_run": []}
    deadline = time.perf_counter() + limits.total
    cases = []
    for name, make in problems(options.quick, options.seed).items():
        base = None
        for gamma in (0.5, 0.99) if options.quick else (0.9, 0.99, 0.999):
            if time.perf_counter() > deadline:
                report.settings["methods"]["not_run"].append(f"{name}, gamma {gamma}")
                continue
            options.say(f"methods, {name}, gamma {gamma}")
            base = base or make().to(options.device)
            cases.append(measure(name, base.with_gamma(gamma), options.device, limits))
            report.cases.append(cases[-1])
            options.keep(report)
        free(options.device)
    ratios = [case.measured["auto_over_fastest"] for case in cases]
    worst = None if None in ratios else max(ratios, default=None)  # None: Auto did not arrive somewhere
    report.targets.append(Target(WORST, worst, at_most=1.5))


def problems(quick: bool, seed: int) -> dict[str, Callable[[], Workload]]:
    """Batches of small graphs, and single graphs with and without locality."""
    many, nodes, sides, heads = (4, (200,), (14,), 8) if quick else (64, (1_000, 100_000), (31, 100, 316, 1000), 64)
    found: dict[str, Callable[[], Workload]] = {
        f"{many} graphs of 20 to 50 nodes": partial(decision_processes, many, heads, START, seed),
        f"{many} graphs of 200 nodes": partial(decision_processes, many, 8, START, seed, (200, 200)),
    }
    for size in nodes:
        found[f"random, {size:,} nodes"] = partial(random, size, 10 * size, 4, START, seed)
    for side in sides:
        found[f"grid {side} x {side}"] = partial(grid, side, 4, START, seed)
    return found


def measure(name: str, work: Workload, device: str, limits: Limits) -> Case:
    case = Case(f"methods, {name}, gamma {work.gamma}", {**work.settings(), "rtol": RTOL}, ours=AUTO)
    cap = limits.cap
    for method, kind in METHODS.items():
        try:
            solver = budgeted(kind, work, device, cap)
            if isinstance(solver, str):
                case.details[method] = {"skipped": solver}
            else:
                record(case, method, solver, work, device, limits)
        except Exception as failure:  # a method that cannot serve this map here is a finding
            case.details[method] = {"skipped": f"{type(failure).__name__}: {failure}"}
        if method == AUTO and AUTO in case.timings:
            cap = min(cap, max(limits.floor, limits.slack * case.timings[AUTO].median))
    case.measured = verdict(case)
    return case


def accuracy(work: Workload) -> dict[str, Any]:
    """The settings that all share."""
    return {"rtol": RTOL, "throw": False, "refine": RTOL * (1 - work.gamma) < 2 * torch.finfo(torch.float32).eps}


def budgeted(kind: type[Solver], work: Workload, device: str, cap: float) -> Solver | str:
    """The method with as many steps as fit under the cap, or why it sits out. Auto is run as everybody does."""
    if kind is Auto:
        return Auto(**accuracy(work))
    if kind is Direct:
        return Direct(**accuracy(work)) if work.graph.largest <= DENSE else f"above {DENSE} nodes"
    if kind.settles and work.graph.small is None:
        return kind(**accuracy(work))  # small graphs whole in one call, which has no budget and is short
    probe = kind(**accuracy(work), max_iterations=PROBE)
    taken = [clocked(solving(probe, work, device)) for _ in range(2)][1]  # the first compiles
    if taken[0] > cap:
        return f"{PROBE} steps take {taken[0]:.2g} s"
    per_step = taken[0] / max(taken[1].iterations, 1)
    steps = max(2 * PROBE, int(cap / per_step))
    needed = steps_needed(work.gamma, RTOL * (1 - work.gamma))
    if kind is Picard and needed > steps:
        return f"{needed} steps would take {needed * per_step:.2g} s"
    return kind(**accuracy(work), max_iterations=steps)


def record(case: Case, name: str, solver: Solver, work: Workload, device: str, limits: Limits) -> None:
    """One run that may compile and, where that was short, as many as there are to be; else a single one."""
    candidate = solving(solver, work, device)
    clocked(candidate)
    seconds, solution = clocked(candidate)
    repeats = limits.repeats - 1 if seconds < SHORT else 0
    case.timings[name] = Timing([seconds, *wall_time(candidate, device, repeats, warm=0).seconds])
    case.errors[name] = {"bound": float(solution.error_bound.max())}
    case.details[name] = described(solution)


def solving(solver: Solver, work: Workload, device: str) -> Candidate:
    prepared = Candidate(lambda new: solved(new, work.graph, solver), prepare=partial(with_new_weights, work))
    return at_rest(prepared, device)


def described(solution: Solution) -> dict[str, object]:
    return {"method": solution.method, "iterations": solution.iterations, "reached": bool(solution.converged.all())}


def verdict(case: Case) -> dict[str, object]:
    """The fastest of those that reached the tolerance, and how many times as long Auto takes."""
    right = list(arrived(case))
    fastest = min(right, key=lambda name: case.timings[name].median, default=None)
    ratio = None if fastest is None or AUTO not in right else case.timings[AUTO].median / case.timings[fastest].median
    return {"fastest": fastest, "auto_over_fastest": ratio}


def arrived(case: Case) -> Iterator[str]:
    return (name for name in case.timings if case.details[name]["reached"])
