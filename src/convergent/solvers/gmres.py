"""GMRES with restarts (Saad and Schultz 1986): the smallest residual in the Krylov space."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from convergent.errors import expect
from convergent.maps import FixedPointMap, LinearMap
from convergent.solvers.krylov import apply, dot, length, ratio
from convergent.solvers.solver import Burst, Solver


@dataclass(frozen=True)
class GMRES(Solver):
    """Minimises the residual over ``restart`` products with W; keeps ``restart`` vectors. Never makes a residual larger."""

    restart: int = 20

    only_linear = True

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(isinstance(self.restart, int) and self.restart >= 1, "restart", "a whole number, 1 or more", repr(self.restart))

    def burst(self, fixed: FixedPointMap, start: Tensor | None, goal: Tensor, limit: int) -> Burst:
        assert isinstance(fixed, LinearMap)
        assert start is None
        graph, depth = fixed.graph, min(self.restart, limit)

        def widen(values: Tensor) -> Tensor:
            return graph.spread(values.to(fixed.dtype))

        live = fixed.size(fixed.bias) > goal
        size = length(graph, fixed.bias)  # [G, H]
        basis = [widen(ratio(torch.ones_like(size), size)) * fixed.bias]
        hessenberg = size.new_zeros(*size.shape, depth + 1, depth)
        for k in range(depth):
            w = apply(fixed, basis[k])
            for j, vector in enumerate(basis):  # modified Gram-Schmidt
                hessenberg[..., j, k] = dot(graph, vector, w)
                w = w - widen(hessenberg[..., j, k]) * vector
            tall = length(graph, w)
            # a space that is exhausted gives a vector of rounding errors: leave it out
            tall = torch.where(tall > 1e-14 * hessenberg[..., : k + 1, k].norm(dim=-1), tall, 0.0)
            hessenberg[..., k + 1, k] = tall
            basis.append(widen(ratio(torch.ones_like(tall), tall)) * w)
        right = torch.zeros_like(hessenberg[..., 0])  # [G, H, depth + 1]
        right[..., 0] = torch.where(live, size, 0.0)
        weights = _least_squares(hessenberg, right)
        x = torch.zeros_like(fixed.bias)
        for k in range(depth):
            x += widen(weights[..., k]) * basis[k]
        return Burst(x, depth * live.any(1).long())


def _least_squares(matrix: Tensor, right: Tensor) -> Tensor:
    """min |matrix y - right| of every lane; columns of zeros get zero."""
    return (torch.linalg.pinv(matrix, rtol=1e-13) @ right.unsqueeze(-1)).squeeze(-1)
