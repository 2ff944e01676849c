"""Time against the number of edges: a sweep and a solve are linear."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.measure import Candidate, clocked, interleave
from benchmarks.options import Options
from benchmarks.report import Case, Report, Target
from benchmarks.workloads import Workload, random
from convergent import Auto, LinearMap, solve
from convergent.kernels import backend

DEGREE, HEADS, GAMMA, TOL = 10, 4, 0.5, 1e-6
SOLVE, SWEEP = "solve", "sweep"


def run(options: Options) -> Report:
    edges = (1_000, 3_000, 10_000) if options.quick else (10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6, 3 * 10**6, 10**7)
    rounds = 3 if options.quick else 9
    settings = {"edges": edges, "degree": DEGREE, "heads": HEADS, "gamma": GAMMA, "tol": TOL, "rounds": rounds}
    report = Report("growth", options.quick, options.seed, settings)
    for count in edges:
        options.say(f"{count} edges")
        work = random(count // DEGREE, count, HEADS, GAMMA, options.seed)
        report.cases.append(measure(work, rounds, options.budget(20.0)))
    for what in (SOLVE, SWEEP):
        times = [case.timings[what].median for case in report.cases]
        slope, pieces = slopes(edges, times)
        report.targets.append(Target(f"slope of log time over log edges, {what}", slope, at_most=1.05))
        report.settings[f"slopes between sizes, {what}"] = pieces
    return report


def measure(work: Workload, rounds: int, budget: float) -> Case:
    case = Case(f"{work.num_edges:,} edges", work.settings(), ours=SOLVE)
    rows, x = work.graph.rows, torch.ones_like(work.bias)

    def solved(_: None) -> torch.Tensor:
        with torch.no_grad():
            return solve(LinearMap(work.graph, work.weight, work.bias), Auto(tol=TOL)).value

    candidates = {
        SOLVE: Candidate(solved),
        SWEEP: Candidate(lambda _: [backend(x).propagate(rows, work.weight, x, work.bias) for _ in range(4)], count=4),
    }
    value = clocked(candidates[SOLVE])[1].double()
    image = work.bias.double().index_add(0, work.row, work.weight.double() * value[work.column])
    case.errors[SOLVE] = {"bound": float((image - value).abs().max()) / (1 - work.gamma)}
    case.timings = interleave(candidates, rounds, budget, ours=SOLVE)
    return case


def slopes(edges: tuple[int, ...], times: list[float]) -> tuple[float, list[float]]:
    """Of the least-squares line, and from each size to the next."""
    across, up = np.log(edges), np.log(times)
    return float(np.polyfit(across, up, 1)[0]), (np.diff(up) / np.diff(across)).round(3).tolist()
