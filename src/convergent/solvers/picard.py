"""Picard iteration: x <- T(x), the method of the paper."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from convergent.maps import FixedPointMap
from convergent.solvers.solver import Burst, Solver


@dataclass(frozen=True)
class Picard(Solver):
    r"""Iterates :math:`x \leftarrow T(x)`.

    It always converges, by the contraction factor in every step, and is the fastest method while that is well below one.
    """

    def burst(self, fixed: FixedPointMap, start: Tensor | None, goal: Tensor, limit: int) -> Burst:
        first = fixed.at_zero() if start is None else start  # T(0) is known: the first step is free
        return Burst(*fixed.sweep(first.to(fixed.dtype), goal.to(torch.float64), limit))
