"""What a solution promises, held against an exact fixed point: the bound, ``converged``, the residual, the status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from campaign.blocks import Structure
from campaign.linear import Reference
from campaign.outcome import Outcome
from convergent import Solution, Status

SURE = 0.02  # a reference has to be so much closer than the bound it is held against
SLACK = 1e-12  # of a comparison in float64
UNDERFLOW = 1e-290  # below it the reference is not exact


class Asked(NamedTuple):
    """What the solve was asked for."""

    tol: float
    rtol: float
    budget: int | None
    norm: str  # "max" or "one"
    name: str = ""  # of the check, in violations


@dataclass
class Checks:
    """Of one solution; everything is per graph and head, [G, H]."""

    outcome: Outcome
    structure: Structure
    solution: Solution
    reference: Reference
    asked: Asked

    def run(self) -> Tensor:
        """Which lanes were verified, bool [G, H]."""
        solution, asked = self.solution, self.asked
        value, bound = solution.value.detach().double(), solution.error_bound
        size = self.structure.norm(value, asked.norm)
        error = self.structure.norm(self.reference.distance(value), asked.norm)
        unsure = self.structure.norm(self.reference.error, asked.norm)
        filled = (self.structure.sizes > 0).unsqueeze(1)
        self.fail("bound is NaN", torch.isnan(bound), status=solution.status, size=size)
        known = torch.isfinite(unsure) & (unsure <= SURE * bound) & filled
        wrong = known & (error - unsure > bound * (1 + SLACK)) & (error > UNDERFLOW)
        wrong |= known & torch.isnan(error) & torch.isfinite(bound)
        self.fail("bound below the true error", wrong, error=error, bound=bound)
        self.converged(bound, size)
        self.statuses(value, bound)
        return known

    def converged(self, bound: Tensor, size: Tensor) -> None:
        """``converged`` if and only if the bound is within the tolerance, and finite where it is."""
        solution, asked = self.solution, self.asked
        allowed = asked.tol + (asked.rtol * size if asked.rtol else torch.zeros_like(size))
        said = solution.status == Status.CONVERGED
        # the size the library compared with may be that of the answer before its last rounding
        eps = 2 * torch.finfo(torch.float32 if solution.value.dtype == torch.float32 else torch.float64).eps
        close = asked.rtol * size * eps
        self.fail("converged above the tolerance", said & ~(bound <= allowed + close), bound=bound, allowed=allowed)
        within = ~said & (bound <= allowed - close) & torch.isfinite(size)
        self.fail("not converged within the tolerance", within, bound=bound, allowed=allowed)
        self.fail("converged and not finite", said & ~torch.isfinite(size), size=size)
        if not torch.equal(solution.converged, said.all(1)):
            self.outcome.violation(f"{asked.name}converged is not that of all heads", "")

    def statuses(self, value: Tensor, bound: Tensor) -> None:
        solution, asked = self.solution, self.asked
        if asked.budget is None:
            self.fail("out of budget without a budget", solution.status == Status.BUDGET, bound=bound)
        elif solution.iterations > asked.budget:
            self.outcome.violation(f"{asked.name}more steps than the budget", f"{solution.iterations} > {asked.budget}")
        size = self.structure.norm(self.reference.value.high, asked.norm)
        fits = size < 1e-3 * torch.finfo(solution.value.dtype).max
        self.note("overflow although the answer fits", (solution.status == Status.OVERFLOW) & fits, size=size)

    def fail(self, kind: str, where: Tensor, **numbers: Tensor) -> None:
        if bool(where.any()):
            self.outcome.violation(self.asked.name + kind, _first(where, numbers))

    def note(self, kind: str, where: Tensor, **numbers: Tensor) -> None:
        if bool(where.any()):
            self.outcome.remark(self.asked.name + kind, _first(where, numbers))


def _first(where: Tensor, numbers: dict[str, Tensor]) -> str:
    """The first place, and the numbers there."""
    place = tuple(int(index) for index in where.nonzero()[0])
    found = ", ".join(f"{name} {float(value[place]):.6g}" for name, value in numbers.items())
    count = f"{int(where.sum())} of {where.numel()}"
    return f"graph {place[0]}, head {place[-1]} ({count}): {found}"
