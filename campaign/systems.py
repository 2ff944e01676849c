"""Solves one random batch every way that is asked of it and checks all that the library promises."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from campaign.certificates import Asked, Checks
from campaign.draw import TRANSFORMS, Drawn, drawn
from campaign.gradients import Adjoints, check_gradient, oriented
from campaign.linear import Reference, solve_linear
from campaign.nonlinear import Activated, MaxPlus, solve_nonlinear
from campaign.outcome import Outcome
from campaign.pool import alone, default_workers, spread
from campaign.transforms import check_transform
from convergent import ConvergenceError, Implicit, OneStep, Solution, Unrolled, solve
from convergent.solvers import Auto

PATIENCE = 10.0  # seconds for one batch
UNROLLED = 30


class TooSlow(BaseException):
    """A solve takes longer than there is time for."""


def check(seed: int, number: int, device: str) -> Outcome:
    """Everything about one batch."""
    outcome = Outcome()
    made = drawn(seed, number, device)
    try:
        with _patience(device):
            _check(made, outcome)
    except TooSlow:
        outcome.remark("given up: too slow", f"{PATIENCE:g} s")
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
        outcome.violation(f"{type(error).__name__} at {at}", str(error)[:400])
    again = {"again": f"{seed}:{number}", "part": "systems", "device": device, "settings": described(made)}
    for entry in (*outcome.failures, *outcome.noted):
        entry.update(again)
    return outcome


def described(made: Drawn) -> dict[str, Any]:
    """The settings of a batch, to be read."""
    own: dict[str, dict[str, Any]] = {"ActivatedMap": {"activation": made.activation}, "MaxPlusMap": {"discount": made.discount}}
    return {
        "map": made.kind,
        **own.get(made.kind, {}),
        "transposed": made.transposed,
        "solver": repr(made.solver),
        "dtype": f"{made.weight.dtype} weight, {made.bias.dtype} bias".replace("torch.", ""),
        "graphs": len(made.structure.sizes),
        "nodes": made.structure.num_nodes,
        "edges": len(made.structure.row),
        "heads": made.bias.shape[1],
        "x0": made.x0 is not None,
        "gradient": made.gradient,
        **made.about,
    }


@contextmanager
def _patience(device: str) -> Iterator[None]:
    def ring(_: int, frame: FrameType | None) -> None:
        if _unsafe(frame):
            signal.setitimer(signal.ITIMER_REAL, 1)  # half a compilation or a module would be left behind
        else:
            raise TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE if device == "cpu" else 3 * PATIENCE)  # a first launch compiles
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _unsafe(frame: FrameType | None) -> bool:
    """Whether something is being compiled or imported."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib") or any(f"/{package}/" in name for package in ("numba", "llvmlite", "triton")):
            return True
        frame = frame.f_back
    return False


def _check(made: Drawn, outcome: Outcome) -> None:
    weight, bias = made.weight.clone(), made.bias.clone()
    if made.gradient != "none":
        weight.requires_grad_()
        bias.requires_grad_()
    adjoints = Adjoints()
    solution = _solved(made, weight, bias, outcome, adjoints)
    reference = exact(made, solution.value)
    known = _held(made, solution, reference, outcome)
    _count(made, known, outcome)
    if made.repeats and made.device == "cpu":
        again = _solved(made, weight, bias, outcome, Adjoints())
        _same(solution, again, outcome)
    if made.alone is not None:
        _alone(made, solution, outcome)
    if made.gradient in TRANSFORMS:
        check_transform(made, solution, reference, outcome)
    if made.gradient in ("implicit", "own") and solution.value.requires_grad:
        check_gradient(made, weight, bias, solution, reference, adjoints, outcome)


def _solved(made: Drawn, weight: Tensor, bias: Tensor, outcome: Outcome, adjoints: Adjoints) -> Solution:
    fixed = made.map(weight, bias)
    gradient: Any = {
        "implicit": Implicit(on_adjoint=adjoints),
        "own": Implicit(solver=Auto(rtol=1e-9, throw=False), on_adjoint=adjoints),
        "one step": OneStep(),
        "unrolled": Unrolled(UNROLLED),
    }.get(made.gradient)
    failure = None
    try:
        solution = solve(fixed, made.solver, made.x0, gradient)
    except ConvergenceError as error:
        failure = error
    if failure is not None and failure.solution is not None:
        if bool(failure.solution.converged.all()):
            outcome.violation("ConvergenceError although all converged", str(failure)[:300])
        return failure.solution
    if made.solver.throw and made.gradient != "unrolled" and not bool(solution.converged.all()):
        outcome.violation("no ConvergenceError although not all converged", "")
    return solution


def exact(made: Drawn, start: Tensor) -> Reference:
    structure = oriented(made)
    if made.kind == "LinearMap":
        return solve_linear(structure, made.weight, made.bias)
    if made.kind == "ActivatedMap":
        return solve_nonlinear(Activated(structure, made.weight, made.bias, made.activation), start.detach())
    return solve_nonlinear(MaxPlus(structure, made.weight, made.bias, made.discount), start.detach())


def _held(made: Drawn, solution: Solution, reference: Reference, outcome: Outcome) -> Tensor:
    """The solution against its promises."""
    wanted = torch.float64 if made.solver.refine else made.dtype
    shape = (made.structure.num_nodes, made.bias.shape[1])
    if solution.value.dtype != wanted or tuple(solution.value.shape) != shape:
        outcome.violation("dtype or shape of the answer", f"{solution.value.dtype} {tuple(solution.value.shape)}")
    budget = UNROLLED if made.gradient == "unrolled" else made.solver.max_iterations
    kind = {"one step": "OneStep: ", "unrolled": "Unrolled: "}.get(made.gradient, "")
    asked = Asked(*made.asked(), budget, made.norm, kind)
    return Checks(outcome, made.structure, solution, reference, asked).run()


def _count(made: Drawn, known: Tensor, outcome: Outcome) -> None:
    lanes = int(known.sum())
    filled = int((made.structure.sizes > 0).sum()) * known.shape[1]
    kind = made.kind if made.kind != "ActivatedMap" else f"ActivatedMap({made.activation})"
    names = [f"map/{kind}", f"solver/{type(made.solver).__name__}", f"certificate/{made.solver.certify}"]
    names += [f"dtype/{str(made.weight.dtype).removeprefix('torch.')}", f"norm/{made.norm}", f"gradient/{made.gradient}"]
    names += [f"contraction/{made.about['contraction']}"]
    names += ["with a budget"] * (made.solver.max_iterations is not None) + ["refined"] * made.solver.refine
    outcome.counts.update(dict.fromkeys(("systems", *names), lanes))
    outcome.counts.update({"batches": 1, "beyond the reference": filled - lanes})


def _same(solution: Solution, again: Solution, outcome: Outcome) -> None:
    outcome.counts["repeated batches"] += 1
    names = ("value", "residual", "error_bound", "status", "steps", "used")
    for name, first, second in zip(names, solution.tensors(), again.tensors(), strict=True):
        if not torch.equal(torch.nan_to_num(first.detach().double()), torch.nan_to_num(second.detach().double())):
            outcome.violation(f"two equal calls differ in {name}", "")


def _alone(made: Drawn, solution: Solution, outcome: Outcome) -> None:
    """One graph without the others: as certain as within the batch, and the same answer up to both bounds."""
    graph = made.alone
    assert graph is not None
    single = made.only(graph)
    answer = _solved(single, single.weight, single.bias, outcome, Adjoints())
    reference = exact(single, answer.value)
    Checks(
        outcome, single.structure, answer, reference, Asked(*made.asked(), made.solver.max_iterations, made.norm, "alone: ")
    ).run()
    outcome.counts["graphs alone"] += 1
    if made.solver.max_iterations is not None or made.gradient in ("one step", "unrolled"):
        return
    size = single.structure.norm(answer.value.detach().double(), made.norm)
    allowed = made.asked()[0] + made.asked()[1] * size
    easily = (answer.status == 0) & (answer.error_bound <= 0.5 * allowed)
    lost = easily[0] & (solution.status[graph] != 0)
    if bool(lost.any()):
        head = int(lost.nonzero()[0])
        bounds = (
            f"bound {float(answer.error_bound[0, head]):.3g} alone, {float(solution.error_bound[graph, head]):.3g} in the batch"
        )
        outcome.violation("converges alone and not in the batch", f"graph {graph}, head {head}: {bounds}")


def run(seed: int, seconds: float, device: str, workers: int | None, first: int) -> Iterator[tuple[int, Outcome]]:
    yield from spread(check, (seed, device), workers or default_workers(device), seconds, first)


def again(seed: int, number: int, device: str) -> Outcome:
    return alone(check, (seed, device), number)
