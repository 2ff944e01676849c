"""Differentiable solvers of other packages beside ours, forward and backward, at the same error."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from benchmarks.calibrate import calibrate
from benchmarks.elimination.solvers import RTOL
from benchmarks.linear_system import Answer, LinearSystem
from benchmarks.measure import Candidate, Timing, clocked
from benchmarks.options import Options
from benchmarks.peers import missing
from benchmarks.peers.sparse import PEERS, Peer
from benchmarks.report import Case, Target

SLOW = 1.0  # seconds: what takes longer is timed once
CAP = 20.0  # seconds of looking for a tolerance after which it is given up
START = 3e-9  # tolerance to begin with
PACKAGES = ("torch-sla", "torchsparsegradutils")  # as the names of peers begin
VALUE, GRADIENT = "error of the answer", "error of the gradient"


@dataclass(frozen=True)
class Others:
    """Peers that are to be timed round by round, and those whose only time is known."""

    candidates: dict[str, Candidate]
    single: dict[str, Timing]


def errors(found: Answer, truth: Answer, system: LinearSystem) -> dict[str, float]:
    """The largest error of each, relative to the largest entry of its head. Weights of zero are no weights: they stand for pins."""
    used = (system.weight != 0).cpu()
    return {
        VALUE: relative(found.value.cpu(), truth.value),
        GRADIENT: relative(found.gradient.cpu() * used, truth.gradient * used),
    }


def relative(found: Tensor, truth: Tensor) -> float:
    return float(((found - truth).abs().amax(0) / truth.abs().amax(0)).max())


def others(case: Case, system: LinearSystem, truth: Answer, options: Options, fills: bool = False) -> Others:
    """Peers at the loosest tolerance with which both errors are at most the one that ours is asked to certify.

    Where factors fill in, direct solvers sit out.
    """
    found = Others({}, {})
    for name, peer in PEERS.items():
        reason = "factors fill in" if fills and not peer.iterative else missing(peer.package)
        if reason:
            case.details[name] = {"skipped": reason}
            continue
        options.say(f"{case.name}: {name}")
        seconds = prepared(case, name, peer, system, truth)
        tol = case.details[name].get("tolerance", 0.0)
        if seconds > options.budget(SLOW):
            found.single[name] = Timing([seconds])
        else:
            found.candidates[name] = Candidate(lambda _, peer=peer, tol=tol: peer.solve(system, tol))
    return found


def prepared(case: Case, name: str, peer: Peer, system: LinearSystem, truth: Answer) -> float:
    """The seconds of a run with the tolerance that is needed; its errors and settings go into the case."""
    case.details[name] = {"method": peer.method(system)}
    if peer.iterative:
        worst = lambda answer: max(errors(answer, truth, system).values())  # noqa: E731
        best = calibrate(lambda tol: peer.solve(system, tol), worst, RTOL, START, tries=4, cap=CAP)
        answer, seconds = best.answer, best.seconds
        case.details[name]["tolerance"] = best.tol
    else:
        peer.solve(system, 0.0)  # imports
        seconds, answer = clocked(Candidate(lambda _: peer.solve(system, 0.0)))
    case.errors[name] = errors(answer, truth, system)
    case.details[name]["reached"] = max(case.errors[name].values()) <= RTOL
    return seconds


def ahead(case: Case) -> list[Target]:
    """Of every package the fastest solver that reached the error."""
    found = []
    for package in PACKAGES:
        names = [name for name in case.timings if name.startswith(package) and case.details[name]["reached"]]
        ratios = [ratio for name in names if (ratio := case.ratio(name)) is not None]
        found.append(Target(f"{case.name}: {package} over ours", min(ratios, default=None), at_least=1.0))
    return found
