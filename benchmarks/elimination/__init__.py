"""Rows that sum to all but one, pinned at a few nodes: elimination of pore networks, forward, adjoint and certificate.

Everybody factorises I - W once per round, solves for the answer and, some, for the certificate's right-hand side 1, and the
transposed system for the gradient. Other packages that have gradients are beside ours at the same error (``compare``), there
and on graphs that are no rock (``plain``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from benchmarks.elimination import plain, solvers
from benchmarks.elimination.compare import ahead, errors, others
from benchmarks.elimination.pores import rock
from benchmarks.elimination.truth import refined, refined_answer
from benchmarks.linear_system import Answer, LinearSystem
from benchmarks.measure import Candidate, at_rest, interleave
from benchmarks.options import Options
from benchmarks.peers import missing
from benchmarks.peers.sparse import MINIMUM_DEGREE
from benchmarks.report import Case, Report, Target
from convergent.kernels.elimination import analyse
from convergent.tasks.pore_network import PoreNetworks

OURS, FORWARD = "solve", "solve, forward"  # Auto, certified
KERNELS, SYMBOLIC = "elimination alone", "symbolic step"
DENSE, SPLU, SPSOLVE = "padded torch.linalg.solve", "splu, graph by graph", "spsolve, forward"
ORDERED = "splu by minimum degree, graph by graph"
CG = "conjugate gradients with pyamg, forward"
CASES = ((16, 100, 4), (64, 200, 4), (4, 1000, 4), (1, 6000, 4), (1, 6000, 1))  # graphs, pores, heads
LARGE = 100_000  # pores of the largest network
LOSSES = (0.0, 1e-12, 1e-9, 1e-6, 1e-3)
TIMED = 1e-6  # the loss at which times are taken, which hardly depend on it


def run(options: Options) -> Report:
    rounds = 2 if options.quick else 7
    settings = {"losses": LOSSES, "timed_at_loss": TIMED, "rounds": rounds, "dtype": "float64", "device": options.device}
    report = Report(
        "elimination" if options.device == "cpu" else f"elimination_{options.device}",
        options.quick,
        options.seed,
        {**settings, "rtol": solvers.RTOL},
    )
    for graphs, pores, heads in ((4, 60, 2),) if options.quick else CASES:
        rng = np.random.default_rng(options.seed)
        networks = [PoreNetworks((pores, pores), wide=True).network(rng) for _ in range(graphs)]
        case = Case(f"{graphs} x {pores} pores, {heads} heads", {"graphs": graphs, "pores": pores, "heads": heads}, ours=OURS)
        options.say(case.name)
        measure(case, partial(rock, networks, heads), options, rounds)
        report.cases.append(case)
        report.targets += targets(case, graphs, options.device)
        options.keep(report)
    if options.device == "cpu":
        plain.run(report, options, rounds)
    if not options.quick and options.device == "cpu":
        case = large(options)
        report.cases.append(case)
        report.targets.append(Target(f"{case.name}: {CG} over ours", case.ratio(CG), at_least=3.0))
    return report


def targets(case: Case, graphs: int, device: str) -> list[Target]:
    wanted = {DENSE: 3.0} if device != "cpu" else {DENSE: 20.0, SPLU: 5.0} if graphs > 1 else {SPLU: 5.0}
    found = [
        Target(f"{case.name}: {peer} over ours", case.ratio(peer), at_least=least)
        for peer, least in wanted.items()
        if peer in case.timings
    ]
    if SPSOLVE in case.timings:
        found.append(Target(f"{case.name}: {SPSOLVE} over ours", case.ratio(SPSOLVE, FORWARD), at_least=3.0))
    return found + (ahead(case) if device == "cpu" else [])


def measure(case: Case, make: Callable[[float], LinearSystem], options: Options, rounds: int) -> None:
    system = make(TIMED).to(options.device)
    case.measured = sizes(system)
    candidates = ours(system)
    answers: dict[str, Callable[[LinearSystem], Tensor]] = {KERNELS: lambda each: solvers.kernels(each)[0][0]}
    if solvers.dense_bytes(system) <= solvers.MOST:
        candidates[DENSE] = Candidate(lambda _: solvers.dense(system))
        answers[DENSE] = lambda each: solvers.dense(each)[0][0]
    else:
        case.details[DENSE] = {"skipped": f"padded matrices of more than {solvers.MOST >> 20} MiB"}
    if options.device == "cpu":
        candidates |= of_scipy(system)
        answers[SPLU] = lambda each: solvers.factors_of_scipy(each)[0]
        answers[ORDERED] = lambda each: solvers.factors_of_scipy(each, MINIMUM_DEGREE)[0]
    case.errors = {name: {} for name in candidates}
    losses(case, make, answers, options)
    single = {}
    truth = refined_answer(make(TIMED))
    case.errors[OURS] = errors(solvers.ours(system), truth, system)
    if DENSE in candidates:
        (value, _), gradient = solvers.dense(system)
        case.errors[DENSE] |= errors(Answer(value, gradient), truth, system)
    if options.device == "cpu":
        peers = others(case, system, truth, options)
        candidates, single = candidates | peers.candidates, peers.single
    options.say(f"{case.name}: rounds")
    resting = {name: at_rest(candidate, options.device) for name, candidate in candidates.items()}
    case.timings = interleave(resting, rounds, options.budget(20.0), ours=OURS) | single


def ours(system: LinearSystem) -> dict[str, Candidate]:
    """The certified solve, and what it is made of."""
    return {
        OURS: Candidate(lambda _: solvers.ours(system)),
        FORWARD: Candidate(lambda _: solvers.forward(system)),
        KERNELS: Candidate(lambda _: solvers.kernels(system)),
        SYMBOLIC: Candidate(lambda _: analyse(system.graph.rows, system.graph.segments)),
    }


def of_scipy(system: LinearSystem) -> dict[str, Candidate]:
    system.matrices  # noqa: B018 - assembled outside the clock: a gift to the peers
    return {
        SPLU: Candidate(lambda _: solvers.factors_of_scipy(system)),
        ORDERED: Candidate(lambda _: solvers.factors_of_scipy(system, MINIMUM_DEGREE)),
        SPSOLVE: Candidate(lambda _: solvers.spsolve(system)),
    }


def sizes(system: LinearSystem) -> dict[str, Any]:
    return {
        "nodes": system.graph.num_nodes,
        "edges": system.graph.num_edges,
        "fill over edges": float(system.symbolic.fill.sum() / system.graph.num_edges),
        "multiply-adds of a head": float(system.symbolic.flops.sum()),
    }


def losses(
    case: Case,
    make: Callable[[float], LinearSystem],
    answers: dict[str, Callable[[LinearSystem], Tensor]],
    options: Options,
) -> None:
    """The error of every answer, entry by entry, as the rows come close to one."""
    for loss in LOSSES:
        options.say(f"{case.name}: errors at a loss of {loss:g}")
        system = make(loss)
        truth = refined(system)
        for name, answer in answers.items():
            found = answer(system.to(options.device)).cpu().numpy()
            case.errors[name][relative_at(loss)] = float((np.abs(found - truth) / truth).max())


def relative_at(loss: float) -> str:
    return f"largest relative error at {loss:g}"


def large(options: Options) -> Case:
    """What elimination of a large network would cost, and what it takes to know."""
    options.say(f"{LARGE} pores")
    rng = np.random.default_rng(options.seed)
    system = rock([PoreNetworks((LARGE, LARGE), wide=True).network(rng)], 1, TIMED)
    case = Case(f"1 x {LARGE} pores, 1 head", {"graphs": 1, "pores": LARGE, "heads": 1}, ours=FORWARD)
    case.measured = sizes(system)
    candidates = {name: candidate for name, candidate in ours(system).items() if name != KERNELS}
    answers = {FORWARD: solvers.kernels(system)[0][0].numpy()}
    if reason := missing("pyamg"):
        case.details[CG] = {"skipped": reason}
    else:
        candidates[CG], answers[CG] = Candidate(lambda _: solvers.multigrid(system)), solvers.multigrid(system)
    truth = refined(system)
    for name, found in answers.items():
        case.errors[name] = {relative_at(TIMED): float((np.abs(found - truth) / truth).max())}
    case.timings = interleave(candidates, 3, options.budget(20.0), ours=FORWARD)
    return case
