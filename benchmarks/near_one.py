"""Contractions of 0.99 and 0.999, where plain iteration is slow: the method Auto picks, against Picard and the peers.

The right-hand side is scaled by 1 - gamma, so that answers are of order one and 1e-6 is within the reach of float32.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import workloads
from benchmarks.calibrate import calibrate
from benchmarks.measure import Candidate, Timing, interleave
from benchmarks.options import Options
from benchmarks.peers import missing
from benchmarks.peers.systems import PEERS, Peer, System
from benchmarks.report import Case, Report, Target
from benchmarks.workloads import Workload
from convergent import GMRES, Anderson, Auto, BiCGStab, Graph, LinearMap, Picard, Solution, solve
from convergent.solvers import Solver

AUTO, COLD, BUILD, PICARD = "Auto", "Auto, cold", "Graph", "Picard"
OTHERS: dict[str, type[Solver]] = {"BiCGStab": BiCGStab, "GMRES": GMRES, "Anderson": Anderson}
TOL = 1e-6
PROBE = 200  # Picard steps from which a run that would be too long is extrapolated
FILL = 10_000  # nodes of a random graph above which factors and coarse matrices are hopeless


@dataclass(frozen=True)
class Limits:
    rounds: int
    budget: float  # seconds after which somebody is not repeated
    cap: float  # seconds one run may take
    picard_cap: float


def run(options: Options) -> Report:
    quick = options.quick
    limits = Limits(2, 0.5, 2.0, 5.0) if quick else Limits(3, 6.0, 10.0, 30.0)
    report = Report("near_one", quick, options.seed, {"tol": TOL, **vars(limits), "extrapolated_from_steps": PROBE})
    for gamma in (0.99,) if quick else (0.99, 0.999):
        for name, make in problems(quick, gamma, options.seed).items():
            work = make()
            for part in (work, work.one_head()):
                case = Case(f"{name}, gamma {gamma}, {part.heads} heads", {**part.settings(), "tol": TOL}, ours=AUTO)
                options.say(case.name)
                measure(case, part, limits, options.say)
                report.cases.append(case)
                wanted = 10 if part.kind == "random" else 5
                if part.kind == "grid" or part.heads > 1:
                    report.targets.append(Target(f"{case.name}: Picard over Auto", case.ratio(PICARD), at_least=wanted))
                options.keep(report)
    return report


def problems(quick: bool, gamma: float, seed: int) -> dict[str, Callable[[], Workload]]:
    nodes, edges, sides = (1_000, 10_000, (16,)) if quick else (100_000, 1_000_000, (316, 1000))
    found: dict[str, Callable[[], Workload]] = {"random": partial(workloads.random, nodes, edges, 16, gamma, seed, 1 - gamma)}
    for side in sides:
        found[f"grid {side} x {side}"] = partial(workloads.grid, side, 4, gamma, seed, 1 - gamma)
    return found


def measure(case: Case, work: Workload, limits: Limits, say: Callable[[str], None]) -> None:
    auto = Auto(tol=TOL, throw=False)
    # new weights every time: what multigrid keeps of the last ones does not count, what it knows of the graph does
    candidates = {AUTO: Candidate(lambda new: solved(new, work.graph, auto), prepare=partial(with_new_weights, work))}
    exact = reference(case, work)
    record(case, AUTO, solved(work, work.graph, auto), exact)
    candidates[COLD] = Candidate(lambda graph: solved(with_new_weights(work), graph, auto), prepare=work.new_graph)
    candidates[BUILD] = Candidate(lambda _: work.new_graph())
    single: dict[str, Timing] = {}  # of those that are too slow to be repeated
    say(f"{case.name}: Picard")
    single[PICARD], candidates[PICARD] = picard(case, work, exact, limits)
    for name, method in OTHERS.items():
        say(f"{case.name}: {name}")
        single[name], candidates[name] = capped(case, name, method, work, exact, limits)
    if work.heads == 1:
        system = System(work)
        for name, peer in PEERS.items():
            if reason := sits_out(peer, work):
                case.details[name] = {"skipped": reason}
                continue
            say(f"{case.name}: {name}")
            single[name], candidates[name] = peer_case(case, name, peer, system, exact, limits)
    slow = {name for name, timing in single.items() if timing.median > limits.budget or case.details[name].get("extrapolated")}
    say(f"{case.name}: rounds")
    playing = {name: candidate for name, candidate in candidates.items() if name not in slow}
    taken = interleave(playing, limits.rounds, limits.budget, ours=AUTO)
    case.timings = {name: single[name] if name in slow else taken[name] for name in candidates}


# --- ours ---


def with_new_weights(work: Workload) -> Workload:
    return replace(work, weight=work.weight.clone())


def solved(work: Workload, graph: Graph, solver: Solver, dtype: torch.dtype = torch.float32) -> Solution:
    with torch.no_grad():
        return solve(LinearMap(graph, work.weight.to(dtype), work.bias.to(dtype)), solver)


def record(case: Case, name: str, solution: Solution, exact: Tensor) -> None:
    """The certificate, and whether it is true."""
    bound, true = float(solution.error_bound.max()), float((solution.value.double() - exact).abs().max())
    case.errors[name] = {"bound": bound, "true": true}
    case.details[name] = {"method": solution.method, "iterations": solution.iterations, "reached": bound <= TOL}


def reference(case: Case, work: Workload) -> Tensor:
    """The solution in float64, with an independent bound on what is left of its error."""
    exact = solved(work, work.graph, Auto(tol=1e-10, throw=False), torch.float64).value
    case.settings["reference_bound"] = error_bound(work, exact)
    return exact


def error_bound(work: Workload, x: Tensor) -> float:
    """No entry is further than this from the solution: the max-norm residual over 1 - contraction."""
    wide, weight = x.double(), work.weight.double()
    image = work.bias.double().index_add(0, work.row, weight * wide[work.column])
    sums = torch.zeros_like(wide).index_add_(0, work.row, weight.abs())
    return float(((image - wide).abs().amax(0) / (1 - sums.amax(0))).max())


def picard(case: Case, work: Workload, exact: Tensor, limits: Limits) -> tuple[Timing, Candidate]:
    """Plain iteration to the same certified error; where that takes too long, extrapolated from its first steps."""
    solver = Picard(tol=TOL, throw=False)
    needed = math.ceil(math.log(TOL * (1 - work.gamma) / float(work.bias.abs().max())) / math.log(work.gamma))
    start = Picard(tol=TOL, throw=False, max_iterations=PROBE)
    solved(work, work.graph, Picard(tol=TOL, throw=False, max_iterations=1))  # compiles
    seconds, solution = _clock(lambda: solved(work, work.graph, start))
    per_step = seconds / max(solution.iterations, 1)
    if per_step * needed > limits.picard_cap:
        record(case, PICARD, solution, exact)
        case.details[PICARD].update(extrapolated=True, iterations=needed, measured_iterations=solution.iterations)
        seconds = per_step * needed
    else:
        seconds, solution = _clock(lambda: solved(work, work.graph, solver))
        record(case, PICARD, solution, exact)
        case.details[PICARD]["extrapolated"] = False
    return Timing([seconds]), Candidate(lambda _: solved(work, work.graph, solver))


def capped(case: Case, name: str, method: type[Solver], work: Workload, exact: Tensor, limits: Limits) -> tuple[Timing, Candidate]:
    """Another of our methods, with a budget of as many steps as fit under the cap."""
    few = method(tol=TOL, throw=False, max_iterations=20)
    solved(work, work.graph, few)  # compiles
    seconds, solution = _clock(lambda: solved(work, work.graph, few))
    budget = max(40, int(limits.cap / seconds * max(solution.iterations, 1)))
    solver = method(tol=TOL, throw=False, max_iterations=budget)
    seconds, solution = _clock(lambda: solved(work, work.graph, solver))
    record(case, name, solution, exact)
    return Timing([seconds]), Candidate(lambda _: solved(work, work.graph, solver))


# --- peers ---


def sits_out(peer: Peer, work: Workload) -> str | None:
    if reason := missing(peer.package):
        return reason
    if peer.fills and work.kind == "random" and work.num_nodes > FILL:
        return f"fills in on random graphs: skipped above {FILL} nodes"
    return None


def peer_case(case: Case, name: str, peer: Peer, system: System, exact: Tensor, limits: Limits) -> tuple[Timing, Candidate]:
    """A peer at the loosest tolerance that brings its residual in float64 to our bound."""
    steps = 1
    if peer.iterative:
        seconds, _ = _clock(lambda: peer.solve(system, 0.0, 8))
        steps = min(100_000, max(10, int(8 * limits.cap / max(seconds - peer.setup_seconds, 1e-6))))
    start = TOL * (1 - system.contraction) * math.sqrt(len(exact))
    found = calibrate(lambda tol: peer.solve(system, tol, steps), system.error_bound, TOL, start, 4, limits.cap)
    case.errors[name] = {"bound": found.error, "true": float(np.abs(found.answer - exact[:, 0].numpy()).max())}
    case.details[name] = {
        "reached": found.reached,
        "tolerance": found.tol,
        "budget_of_steps": steps,
        "setup_seconds": peer.setup_seconds,
        "dtype": "float64",
    }
    return Timing([found.seconds]), Candidate(lambda _: peer.solve(system, found.tol, steps))


def _clock(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result
