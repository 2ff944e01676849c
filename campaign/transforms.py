"""Derivatives by torch.func and in forward mode against those of dense elimination."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import forward_ad

from campaign.blocks import Inverse
from campaign.draw import Drawn
from campaign.gradients import TINY, Gradient, oriented
from campaign.linear import Reference, solve_linear
from campaign.outcome import Outcome
from convergent import ConvergenceError, Solution, solve

MEMBERS = (1.0, -1.0, 0.5)  # factors of the cotangent in a batch of them
CLOSE = 1e-3  # the library measures its tolerance by the answer it has found

Function = Callable[[Tensor, Tensor], Tensor]


def check_transform(made: Drawn, solution: Solution, reference: Reference, outcome: Outcome) -> None:
    """The derivative that ``made.gradient`` names, of a solve that has converged."""
    assert made.cotangent is not None
    if not bool(solution.converged.all()) or not bool(torch.isfinite(solution.value).all()):
        return
    check = {"vjp": _vjp, "vmap": _vmap, "jvp": _jvp, "forward": _jvp}[made.gradient]
    try:
        check(made, solution, reference, outcome)
    except ConvergenceError:  # of the derivative: its tolerance may be too small for the dtype
        outcome.counts["derivatives that did not converge"] += 1


def _value(made: Drawn) -> Function:
    return lambda weight, bias: solve(made.map(weight, bias), made.solver, made.x0).value


def _vjp(made: Drawn, solution: Solution, reference: Reference, outcome: Outcome) -> None:
    assert made.cotangent is not None
    value, pullback = torch.func.vjp(_value(made), made.weight, made.bias)[:2]
    if not torch.equal(value, solution.value):
        outcome.violation("vjp: another answer than without it", f"by {float((value - solution.value).abs().max()):.3g}")
    to_weight, to_bias = pullback(made.cotangent.to(value.dtype))
    _compare(made, solution, reference, to_weight, to_bias, outcome)


def _vmap(made: Drawn, solution: Solution, reference: Reference, outcome: Outcome) -> None:
    """A batch of biases forward, and of cotangents backward."""
    assert made.cotangent is not None
    factors = torch.tensor(MEMBERS, dtype=made.bias.dtype, device=made.bias.device).view(-1, 1, 1)
    values = torch.func.vmap(_value(made), (None, 0))(made.weight, factors * made.bias)
    for index, factor in enumerate(MEMBERS):
        _compare_member(made, factor, values[index], outcome)
    value, pullback = torch.func.vjp(_value(made), made.weight, made.bias)[:2]
    grads = torch.func.vmap(pullback)(factors.to(value.dtype) * made.cotangent.to(value.dtype))
    for index, factor in enumerate(MEMBERS):
        member = dataclasses.replace(made, cotangent=factor * made.cotangent)
        _compare(member, solution, reference, grads[0][index], grads[1][index], outcome)


def _compare_member(made: Drawn, factor: float, value: Tensor, outcome: Outcome) -> None:
    """The answer of one member of a batch is within the tolerance: otherwise there would have been an error."""
    if made.kind != "LinearMap":
        return
    structure, (tol, rtol) = oriented(made), made.asked()
    reference = solve_linear(structure, made.weight, factor * made.bias)
    off, unsure = (structure.norm(part, made.norm) for part in (reference.distance(value), reference.error))
    allowed = (tol + rtol * structure.norm(value.double(), made.norm)) * (1 + CLOSE)
    known = torch.isfinite(unsure)
    wrong = known & (off - unsure > allowed)
    if bool(wrong.any()):
        place = tuple(wrong.nonzero()[0].tolist())
        outcome.violation("vmap: further off than the tolerance", f"{float(off[place]):.6g} > {float(allowed[place]):.6g}")
    outcome.counts["members of a batch"] += int(known.sum())


def _compare(made: Drawn, solution: Solution, reference: Reference, to_weight: Tensor, to_bias: Tensor, outcome: Outcome) -> None:
    """The gradients against those of dense elimination; the adjoint is within its tolerance, or there would have been an error."""
    gradient = Gradient(made, reference, solution, None, f"{made.gradient}: ")
    gradient.check(to_weight, to_bias, outcome)


def _jvp(made: Drawn, solution: Solution, reference: Reference, outcome: Outcome) -> None:
    """The derivative along one direction of a linear map, dx = W dx + dW x + db."""
    assert made.cotangent is not None
    assert made.direction is not None
    along = made.direction, made.cotangent.to(made.bias.dtype)
    if made.gradient == "jvp":
        tangent = torch.func.jvp(_value(made), (made.weight, made.bias), along)[1]
    else:
        with forward_ad.dual_level():
            weight, bias = forward_ad.make_dual(made.weight, along[0]), forward_ad.make_dual(made.bias, along[1])
            tangent = forward_ad.unpack_dual(_value(made)(weight, bias)).tangent
    structure, x = oriented(made), reference.value.high
    moved, shift = (part.double() for part in along)
    wanted = solve_linear(structure, made.weight, structure.sum_rows(moved * x[structure.column]) + shift)
    eps = 16 * torch.finfo(made.dtype).eps
    off_x = solution.error_bound[structure.graph_of] + eps * x.abs()
    force = structure.sum_rows(moved.abs() * off_x[structure.column]) + eps * shift.abs()
    spread = Inverse(structure, made.weight)(force, absolute=True) + wanted.error + eps * wanted.value.high.abs()
    found, unsure = (structure.norm(part, made.norm) for part in (wanted.distance(tangent), spread))
    size = structure.norm(wanted.value.high, made.norm)
    allowed = 2 * unsure + (TINY + made.relative() * size) * (1 + CLOSE)
    known = torch.isfinite(allowed) & (size < torch.finfo(made.dtype).max / 16)
    wrong = known & ~(found <= allowed)
    if bool(wrong.any()):
        place = tuple(wrong.nonzero()[0].tolist())
        outcome.violation(f"{made.gradient}: tangent", f"off by {float(found[place]):.6g} > {float(allowed[place]):.6g} at {place}")
    outcome.counts["tangents"] += int(known.sum())
