"""Random graphs and grids with rows that sum to 0.99 and 0.999, where elimination is not always the best method.

All but ours work in float64 on matrices; ours is what ``Auto`` chooses. No system here can be made symmetric.
"""

from __future__ import annotations

import torch

from benchmarks import workloads
from benchmarks.elimination import solvers
from benchmarks.elimination.compare import ahead, errors, others
from benchmarks.elimination.truth import refined_answer
from benchmarks.linear_system import Answer, LinearSystem
from benchmarks.measure import Candidate, interleave
from benchmarks.options import Options
from benchmarks.report import Case, Report
from benchmarks.workloads import Workload
from convergent import Auto, LinearMap, solve

HEADS = 4
GAMMAS = (0.99, 0.999)
FILLS = 5_000  # nodes of a random graph from which factors fill in too much
EXACT = 1e-11  # certified relative error of what answers are compared with, where factors fill in
OURS, DENSE = "solve", "padded torch.linalg.solve"


def run(report: Report, options: Options, rounds: int) -> None:
    """Adds its cases and targets to the report."""
    sizes = {"random": (200,), "grid": (8,)} if options.quick else {"random": (1_000, 10_000), "grid": (32, 100)}
    for gamma in GAMMAS[:1] if options.quick else GAMMAS:
        for size in sizes["random"]:
            work = workloads.random(size, 10 * size, HEADS, gamma, options.seed)
            report.cases.append(measure(f"random, {size} nodes, gamma {gamma}", work, options, rounds, fills=size >= FILLS))
            report.targets += ahead(report.cases[-1])
            options.keep(report)
        for side in sizes["grid"]:
            work = workloads.grid(side, HEADS, gamma, options.seed)
            report.cases.append(measure(f"grid {side} x {side}, gamma {gamma}", work, options, rounds))
            report.targets += ahead(report.cases[-1])
            options.keep(report)


def measure(name: str, work: Workload, options: Options, rounds: int, fills: bool = False) -> Case:
    options.say(name)
    case = Case(name, {**work.settings(), "dtype": "float64", "rtol": solvers.RTOL}, ours=OURS)
    system, solver = system_of(work), Auto(rtol=solvers.RTOL)
    truth = exact(system) if fills else refined_answer(system)
    candidates = {OURS: Candidate(lambda _: solvers.ours(system, solver))}
    case.errors[OURS] = errors(solvers.ours(system, solver), truth, system)
    case.details[OURS] = {"method": solvers.forward(system, solver).method}
    if solvers.dense_bytes(system) <= solvers.MOST:
        candidates[DENSE] = Candidate(lambda _: solvers.dense(system))
        (value, _), gradient = solvers.dense(system)
        case.errors[DENSE] = errors(Answer(value, gradient), truth, system)
    else:
        case.details[DENSE] = {"skipped": f"padded matrices of more than {solvers.MOST >> 20} MiB"}
    peers = others(case, system, truth, options, fills)
    case.timings = interleave(candidates | peers.candidates, rounds, options.budget(10.0), ours=OURS) | peers.single
    return case


def system_of(work: Workload) -> LinearSystem:
    right = torch.stack([work.bias.double(), torch.ones_like(work.bias, dtype=torch.float64)])
    adjoint = torch.randn(1, *work.bias.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return LinearSystem(work.graph, work.weight.double(), right, adjoint)


def exact(system: LinearSystem) -> Answer:
    """By our own solver, certified to far less than is asked of anybody: for systems whose factors fill in."""
    fixed = LinearMap(system.graph, system.weight, system.right[0])
    solver = Auto(rtol=EXACT)
    x, y = solve(fixed, solver).value, solve(fixed.transpose(system.adjoint[0]), solver).value
    return Answer(x, y[system.graph.row] * x[system.graph.column])
