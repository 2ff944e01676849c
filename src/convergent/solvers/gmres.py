"""GMRES with restarts (Saad and Schultz 1986): the smallest residual in the Krylov space."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from convergent.errors import expect
from convergent.graph import Graph
from convergent.maps import FixedPointMap, LinearMap
from convergent.solvers.krylov import apply, dot, ratio
from convergent.solvers.solver import Burst, Solver

CHECK = 5  # steps between two looks at the smallest residual in the space


@dataclass(frozen=True)
class GMRES(Solver):
    """Minimises the residual over a Krylov space, and restarts from the minimiser. The residual never grows.

    Args:
        restart: dimension of the space, which is the number of vectors kept.
    """

    restart: int = 20

    only_linear = True

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(isinstance(self.restart, int) and self.restart >= 1, "restart", "a whole number, 1 or more", repr(self.restart))

    def burst(self, fixed: FixedPointMap, start: Tensor | None, goal: Tensor, limit: int) -> Burst:
        assert isinstance(fixed, LinearMap)
        assert start is None
        graph, depth = fixed.graph, min(self.restart, limit)
        live = fixed.size(fixed.bias) > goal  # [G, H]
        size = torch.where(live, dot(graph, fixed.bias, fixed.bias).sqrt(), 0.0)
        enough = goal if fixed.norm == "max" else goal / graph.segments.diff().clamp(min=1).sqrt().unsqueeze(1)
        basis = fixed.bias.new_zeros(graph.num_nodes, depth + 1, fixed.heads)  # [N, k, H]
        basis[:, 0] = graph.spread(ratio(live.double(), size).to(fixed.dtype)) * fixed.bias
        hessenberg = size.new_zeros(*size.shape, depth + 1, depth)  # [G, H, k + 1, k]
        steps, mix = 0, size.new_zeros(*size.shape, 0)
        for k in range(depth):
            direction, hessenberg[..., : k + 2, k] = _orthogonal(graph, basis[:, : k + 1], apply(fixed, basis[:, k]))
            basis[:, k + 1] = direction
            steps = k + 1
            if steps % CHECK == 0 or steps == depth:
                mix, left = _least_squares(hessenberg[..., : k + 2, : k + 1], size)
                if bool((left <= enough).all()):
                    break
        x = (graph.spread(mix.to(fixed.dtype)).transpose(1, 2) * basis[:, :steps]).sum(1)
        return Burst(x, steps * live.any(1).long())


def _orthogonal(graph: Graph, basis: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """w without its part in the basis [N, k, H], of length one, and its coefficients [G, H, k + 1]; two rounds, for rounding."""
    nodes, count, heads = basis.shape
    before = dot(graph, w, w).sqrt()
    flat, total = basis.reshape(nodes, count * heads), torch.zeros((), dtype=torch.float64)
    for _ in range(2):
        parts = dot(graph, flat, w.repeat(1, count)).view(-1, count, heads)  # [G, k, H]
        w = w - (graph.spread(parts.to(w.dtype)) * basis).sum(1)
        total = total + parts
    length = dot(graph, w, w).sqrt()
    # a space that is exhausted leaves a vector of rounding errors: it is dropped
    length = torch.where(length > 10 * torch.finfo(w.dtype).eps * before, length, 0.0)
    direction = graph.spread(ratio(torch.ones_like(length), length).to(w.dtype)) * w
    return direction, torch.cat([total, length.unsqueeze(1)], 1).transpose(1, 2)


def _least_squares(hessenberg: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """argmin_y |hessenberg y - size e_1| of every lane, [G, H, k], and the minimum, [G, H]; dropped directions get zero."""
    q, r = torch.linalg.qr(hessenberg)
    right = q[..., 0, :] * size.unsqueeze(-1)  # Q^T (size e_1)
    diagonal = r.diagonal(dim1=-2, dim2=-1)
    dead = diagonal.abs() <= 1e-14 * diagonal.abs().amax(-1, keepdim=True)
    r = r + torch.diag_embed(torch.where(dead, 1.0 - diagonal, 0.0))
    right = torch.where(dead, 0.0, right)
    mix = torch.linalg.solve_triangular(r, right.unsqueeze(-1), upper=True).squeeze(-1)
    left = (size.square() - right.square().sum(-1)).clamp(min=0).sqrt()
    return torch.where(torch.isfinite(mix), mix, 0.0), left
