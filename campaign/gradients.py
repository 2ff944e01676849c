"""The adjoint's certificate, and gradients against those of dense elimination."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from campaign.blocks import Inverse, Structure
from campaign.certificates import Asked, Checks
from campaign.draw import Drawn
from campaign.extended import BENDS, SLOPES, slope
from campaign.linear import Reference, solve_linear
from campaign.outcome import Outcome
from convergent import LinearMap, Solution

FACTOR = 2.0  # gradients may be so much further off than what follows from the certificates to first order
TINY = torch.finfo(torch.float32).tiny


def oriented(made: Drawn) -> Structure:
    """The structure whose rows the map sums over."""
    return made.structure.transposed() if made.transposed else made.structure


@dataclass
class Adjoints:
    """Keeps what ``Implicit`` tells of its adjoint solves."""

    solutions: list[Solution] = field(default_factory=list)

    def __call__(self, solution: Solution) -> None:
        self.solutions.append(solution)


def check_gradient(
    made: Drawn, weight: Tensor, bias: Tensor, solution: Solution, reference: Reference, adjoints: Adjoints, outcome: Outcome
) -> None:
    assert made.cotangent is not None
    if not bool(torch.isfinite(solution.value).all()):
        return
    try:
        solution.value.backward(made.cotangent.to(solution.value.dtype))
    except RuntimeError as error:  # a ConvergenceError of the adjoint: torch's own errors are violations
        if type(error).__name__ != "ConvergenceError":
            raise
        return
    if len(adjoints.solutions) != 1:
        outcome.violation("adjoint: not told of once", str(len(adjoints.solutions)))
        return
    (adjoint,) = adjoints.solutions
    known = _check_adjoint(made, solution, adjoint, outcome)
    outcome.counts["adjoints"] += int(known.sum())
    if made.kind != "MaxPlusMap" and weight.grad is not None and bias.grad is not None:
        Gradient(made, reference, solution, adjoint.error_bound).check(weight.grad, bias.grad, outcome)


def _check_adjoint(made: Drawn, solution: Solution, adjoint: Solution, outcome: Outcome) -> Tensor:
    """The adjoint is the fixed point of a linear map with these stored numbers."""
    assert made.cotangent is not None
    fixed = made.map(made.weight, made.bias)
    turned = fixed.transpose(made.cotangent.to(fixed.dtype), at=solution.value.detach().to(fixed.dtype))
    assert isinstance(turned, LinearMap)
    reference = solve_linear(oriented(made).transposed(), turned.weight.detach(), turned.bias.detach())
    rtol = 1e-9 if made.gradient == "own" else made.relative()
    tol = 0.0 if made.gradient == "own" else TINY
    budget = None if made.gradient == "own" else made.solver.max_iterations
    norm = "max" if made.transposed else "one"
    return Checks(outcome, made.structure, adjoint, reference, Asked(tol, rtol, budget, norm, "adjoint: ")).run()


@dataclass
class Gradient:
    """dL/db = s y and dL/dw = s_i y_i x_j, with y = (I - J^T)^-1 g at the exact fixed point and s the activation's slope there."""

    made: Drawn
    reference: Reference
    solution: Solution
    adjoint_bound: Tensor | None  # on the error of the adjoint, [G, H]; None: what its tolerance allows
    name: str = ""  # of the check, in violations

    def check(self, to_weight: Tensor, to_bias: Tensor, outcome: Outcome) -> None:
        made, structure = self.made, self.structure
        x = self.reference.value.high
        inner = structure.sum_rows(made.weight.double() * x[structure.column]) + made.bias.double()
        at = slope(made.activation, inner)
        assert made.cotangent is not None
        turned = structure.transposed()
        entries = made.weight.double() * at[structure.row]
        adjoint = solve_linear(turned, entries, made.cotangent)
        y = adjoint.value.high
        known, off_slope = self.slopes(inner)
        off = self.off(y, entries, off_slope) + adjoint.error
        eps = 16 * torch.finfo(made.dtype).eps
        leaf = [4 * torch.finfo(gradient.dtype).eps for gradient in (to_bias, to_weight)]  # of which each has its own dtype
        least = [max(TINY, _smallest(gradient.dtype)) for gradient in (to_bias, to_weight)]
        allowed = off * at.abs() + y.abs() * off_slope + (eps + leaf[0]) * y.abs() + least[0]
        self.compare("bias", to_bias, at * y, allowed, structure.graph_of, known, outcome)
        outer = (at * y)[structure.row] * x[structure.column]
        per_lane = self.solution.error_bound[structure.graph_of]
        allowed = allowed[structure.row] * (x.abs() + per_lane)[structure.column]
        allowed = allowed + (y.abs()[structure.row] * per_lane[structure.column]) + (eps + leaf[1]) * outer.abs() + least[1]
        self.compare("weight", to_weight, outer, allowed, structure.graph_of[structure.row], known, outcome)
        outcome.counts["gradients"] += int(known.sum())

    @property
    def structure(self) -> Structure:
        return oriented(self.made)

    def slopes(self, inner: Tensor) -> tuple[Tensor, Tensor]:
        """Of which lanes the slopes are certain, and how far off they may be, [N, H]."""
        made, structure = self.made, self.structure
        bound = self.solution.error_bound
        rounding = 8 * torch.finfo(made.dtype).eps * (inner.abs() + 1)
        moved = SLOPES[made.activation] * bound[structure.graph_of] + rounding * 4
        bend = BENDS[made.activation]
        certain = torch.isfinite(bound) & torch.isfinite(structure.norm(inner, "max")) & (structure.sizes > 0).unsqueeze(1)
        if bend is None:
            near = (inner.abs() <= 4 * moved).double()
            return certain & (structure.norm(near, "max") == 0), torch.zeros_like(inner)
        return certain, (bend * moved).clamp(max=2.0) if bend else torch.zeros_like(inner)

    def off(self, y: Tensor, entries: Tensor, off_slope: Tensor) -> Tensor:
        """How far the adjoint may be from the exact one in any node, [N, H]."""
        made, structure = self.made, self.structure
        norm = "max" if made.transposed else "one"
        rows = structure.sum_rows(made.weight.double().abs())
        eps = 16 * torch.finfo(made.dtype).eps
        jumps = (off_slope + eps * (made.activation != "identity")) * rows
        force = structure.transposed().sum_rows(
            made.weight.double().abs() * (off_slope[structure.row] + eps) * y.abs()[structure.row]
        )
        force = force if made.activation != "identity" else torch.zeros_like(jumps)
        spread = Inverse(structure.transposed(), entries)(force, absolute=True)
        bound = self.adjoint_bound
        if bound is None:
            bound = (TINY + made.relative() * structure.norm(y, norm)) * 1.01  # relative to the adjoint as it was found
        total = bound + structure.norm(spread, norm)
        return total[structure.graph_of]

    def compare(
        self, name: str, found: Tensor, wanted: Tensor, allowed: Tensor, graph: Tensor, known: Tensor, outcome: Outcome
    ) -> None:
        off = (found.double() - wanted).abs()
        large = torch.finfo(found.dtype).max / 16
        sure = known[graph] & torch.isfinite(allowed) & (wanted.abs() + allowed < large)
        wrong = sure & ~(off <= FACTOR * allowed)
        if bool(wrong.any()):
            place = tuple(wrong.nonzero()[0].tolist())
            numbers = f"{float(found[place]):.6g}, expected {float(wanted[place]):.6g} within {float(allowed[place]):.3g}"
            outcome.violation(f"{self.name}gradient of the {name}", f"{int(wrong.sum())} of {wrong.numel()} at {place}: {numbers}")


def _smallest(dtype: torch.dtype) -> float:
    """The smallest positive number of a dtype: below it gradients round to zero or to this."""
    number = torch.finfo(dtype)
    return number.tiny * number.eps
