"""What a solve returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import torch
from torch import Tensor

from convergent.solvers.solver import Solver


class Status(IntEnum):
    """The outcome of a solve for one graph and head.

    Attributes:
        CONVERGED: the certified error is within the tolerance.
        PRECISION: the dtype cannot represent the answer within the tolerance.
        BUDGET: ``max_iterations`` ran out.
        OVERFLOW: the answer is too large for the dtype.
        STEADY: the last step is within the tolerance, but nothing bounds the error (of a baseline whose map need not contract).
    """

    CONVERGED = 0
    PRECISION = 1
    BUDGET = 2
    OVERFLOW = 3
    STEADY = 4


@dataclass(frozen=True, eq=False)
class Solution:
    """A fixed point with a certified error bound.

    Attributes:
        value: [N, H], differentiable in the map's parameters.
        residual: [G, H], the norm of T(value) - value.
        error_bound: [G, H], upper bound on the error of each entry of ``value`` (for an adjoint map: on the sum of the errors
            over the nodes of a graph).
        status: [G, H], a ``Status`` for every graph and head.
        steps: [G], steps that each graph took.
        used: [methods], which methods took part.
    """

    value: Tensor
    residual: Tensor
    error_bound: Tensor
    status: Tensor
    steps: Tensor
    used: Tensor

    @property
    def converged(self) -> Tensor:
        """Whether all heads of a graph are within the tolerance, bool [G]."""
        return (self.status == Status.CONVERGED).all(1)

    @property
    def iterations(self) -> int:
        """The largest number of steps that a graph took."""
        return int(self.steps.max()) if self.steps.numel() else 0

    @property
    def method(self) -> str:
        """The methods that took part, joined by " + "."""
        return " + ".join(name for name, used in zip(Solver.methods, self.used.tolist(), strict=False) if used) or "none"

    def tensors(self) -> tuple[Tensor, ...]:
        return self.value, self.residual, self.error_bound, self.status, self.steps, self.used

    def replaced(self, graphs: Tensor, nodes: Tensor, other: Solution) -> Solution:
        """This solution with some graphs, whose nodes these are, taken from another; their steps add up."""
        value, residual, bound, status, steps, _ = (part.clone() for part in self.tensors())
        value[nodes], residual[graphs], bound[graphs] = other.value, other.residual, other.error_bound
        status[graphs], steps[graphs] = other.status, steps[graphs] + other.steps
        return Solution(value, residual, bound, status, steps, self.used | other.used)

    def __repr__(self) -> str:
        done = int(self.converged.sum())
        worst = f"{float(self.error_bound.max()):.3g}" if self.error_bound.numel() else "0"
        graphs = f"{done} of {len(self.steps)} graphs converged"
        return f"Solution({graphs}, error_bound<={worst}, iterations={self.iterations}, method={self.method!r})"


def beside(parts: Sequence[Solution]) -> Solution:
    """The solutions of some heads each as that of all of them; steps are the most that any of them took."""
    value, residual, bound, status = (torch.cat([part.tensors()[index] for part in parts], 1) for index in range(4))
    steps = torch.stack([part.steps for part in parts]).amax(0)
    return Solution(value, residual, bound, status, steps, torch.stack([part.used for part in parts]).any(0))


def used_methods(names: tuple[str, ...], device: torch.device) -> Tensor:
    """Which of the methods there are now took part, bool [methods]."""
    return _flags(names, tuple(Solver.methods), device)


@lru_cache(maxsize=256)
def _flags(names: tuple[str, ...], methods: tuple[str, ...], device: torch.device) -> Tensor:
    return torch.tensor([name in names for name in methods], device=device)
