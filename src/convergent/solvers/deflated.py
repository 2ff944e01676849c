"""Picard iteration with the constant error of each graph taken out."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from convergent.errors import expect
from convergent.kernels import backend
from convergent.maps import FixedPointMap, LinearMap
from convergent.solvers.solver import Burst, Solver


@dataclass(frozen=True)
class Deflated(Solver):
    """Picard steps, each followed by the best constant shift of every graph and head.

    On well-connected graphs the constant is the only slow part of the error. Without it the iteration converges at the rate of the
    second eigenvalue, whatever the contraction. A graph and head that converges more slowly than Picard must, changes to Picard.

    Args:
        trial: steps after which the convergence rate is measured; ``Auto`` continues with another method if it is too low.
    """

    trial: int = 96

    only_linear = True
    settles = 100_000

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(isinstance(self.trial, int) and self.trial >= 1, "trial", "a whole number, 1 or more", repr(self.trial))

    def patience(self) -> int | None:
        return self.trial

    def burst(self, fixed: FixedPointMap, start: Tensor | None, goal: Tensor, limit: int) -> Burst:
        assert isinstance(fixed, LinearMap)
        assert start is None  # the loop solves for corrections, which start from zero
        structure = (fixed.graph.rows, fixed.graph.segments)
        operator = (fixed.weight, fixed.bias.to(fixed.dtype), fixed.norm)
        return Burst(*backend(fixed.bias).deflated(*structure, *operator, fixed.contraction, goal, limit))
