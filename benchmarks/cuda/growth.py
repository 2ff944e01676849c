"""Time against the number of edges, from a hundred thousand to a hundred million: an iteration and a solve are linear."""

from __future__ import annotations

import torch

from benchmarks.cuda.clock import free, wall_time
from benchmarks.cuda.iteration import iteration_time
from benchmarks.cuda.problem import DEGREE, Regular, structure, weighted
from benchmarks.growth import slopes
from benchmarks.measure import Candidate
from benchmarks.options import Options
from benchmarks.report import Case, Report, Target
from convergent import Auto, LinearMap, Solution, solve

HEADS, TOL = 4, 1e-5
SOLVE, ITERATION = "solve", "iteration"
FROM = 10**6  # edges below which launches, not memory, take the time


def run(report: Report, options: Options) -> None:
    edges = (1_000, 3_000, 10_000) if options.quick else tuple(base * 10**power for power in (5, 6, 7) for base in (1, 3))
    edges += () if options.quick else (10**8,)
    repeats, least = (3, 0) if options.quick else (5, FROM)
    report.settings["growth"] = {"edges": edges, "heads": HEADS, "tol": TOL, "repeats": repeats, "slope_from": least}
    cases = []
    for count in edges:
        options.say(f"growth, {count:,} edges")
        edge_index = structure("local", count // DEGREE, options.seed, options.device)
        cases.append(measure(weighted("local", edge_index, HEADS, options.seed), options.device, repeats))
        report.cases.append(cases[-1])
        options.keep(report)
        free(options.device)
    for what in (SOLVE, ITERATION):
        counted = {count: case.timings[what].median for count, case in zip(edges, cases, strict=True) if count >= least}
        if min(counted.values()) <= 0:  # a difference of two times, lost in noise
            report.targets.append(Target(f"growth, slope, {what}", None, at_most=1.05))
            continue
        slope, pieces = slopes(tuple(counted), list(counted.values()))
        report.targets.append(Target(f"growth, slope, {what}", slope, at_most=1.05))
        report.settings["growth"][f"slopes between sizes, {what}"] = pieces


def measure(problem: Regular, device: str, repeats: int) -> Case:
    case = Case(f"growth, {problem.edges:,} edges", {**problem.settings(), "tol": TOL}, ours=SOLVE)
    graph = problem.graph()

    def solved(_: None = None) -> Solution:
        with torch.no_grad():
            return solve(LinearMap(graph, problem.weight, problem.bias), Auto(tol=TOL))

    solution = solved()
    case.details[SOLVE] = {"method": solution.method, "iterations": solution.iterations}
    residual = problem.away(solution.value, solution.value)
    bounds = {"certified": float(solution.error_bound.max()), "true": residual / (1 - float(problem.contraction.max()))}
    case.errors[SOLVE] = bounds
    case.timings[SOLVE] = wall_time(Candidate(solved), device, repeats, warm=1)
    case.timings[ITERATION] = iteration_time(problem, device, repeats)
    return case
