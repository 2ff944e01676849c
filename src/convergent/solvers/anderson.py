"""Anderson acceleration (Anderson 1965; Walker and Ni 2011): extrapolation over the last few steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from convergent.errors import expect
from convergent.graph import Graph
from convergent.maps import FixedPointMap
from convergent.solvers.krylov import dot
from convergent.solvers.solver import Burst, Solver

STAGNATION = 60


@dataclass(frozen=True)
class Anderson(Solver):
    r"""Anderson acceleration, for linear and non-linear maps:

    .. math::
        x \leftarrow T(x) - \sum_k g_k\, \Delta T_k, \qquad
        g = \operatorname{argmin}_g \left\| r - \sum_k g_k\, \Delta r_k \right\|_2

    where :math:`r = T(x) - x`, and the differences are those between the last steps. Each graph and head has its own coefficients,
    and takes a plain step when its residual has grown.

    Args:
        depth: how many differences are kept.
    """

    depth: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(isinstance(self.depth, int) and self.depth >= 1, "depth", "a whole number, 1 or more", repr(self.depth))

    def burst(self, fixed: FixedPointMap, start: Tensor | None, goal: Tensor, limit: int) -> Burst:
        graph = fixed.graph
        x = fixed.at_zero() if start is None else start.to(fixed.dtype)
        steps = torch.zeros(len(goal), dtype=torch.long, device=x.device)
        live = torch.isfinite(goal)
        image = fixed(x)
        r = image - x
        size = fixed.size(r)
        best, best_x, stale = size, x, 0
        window = _Window(graph, self.depth, x)
        nodes = graph.segments.diff()
        enough = int(nodes[live.any(1)].sum()) // 2
        for _ in range(limit):
            live = live & (size > goal) & torch.isfinite(size)
            left = int(nodes[live.any(1)].sum())
            if left == 0 or stale > STAGNATION or (graph.num_graphs > 1 and left <= enough):
                break
            step = image - window.correction(r, trusted=size <= best)
            x_next = torch.where(graph.spread(live), step, x)
            image_next = fixed(x_next)
            r_next = image_next - x_next
            window.add(r_next - r, image_next - image)
            x, image, r = x_next, image_next, r_next
            steps += live.any(1)
            size = fixed.size(r)
            better = live & (size < best)
            stale = 0 if bool((size < 0.9 * best)[live].any()) else stale + 1
            best_x = torch.where(graph.spread(better), x, best_x)
            best = torch.where(better, size, best)
        return Burst(best_x, steps)


class _Window:
    """The last few differences of the residual and of the image, and the inner products of the former."""

    def __init__(self, graph: Graph, depth: int, like: Tensor):
        nodes, heads = like.shape
        self.graph, self.depth, self.count = graph, depth, 0
        self.residuals = like.new_zeros(nodes, depth, heads)
        self.images = torch.zeros_like(self.residuals)
        self.gram = like.new_zeros(graph.num_graphs, heads, depth, depth, dtype=torch.float64)

    def _dots(self, values: Tensor) -> Tensor:
        """<dr_k, values> of every lane: [G, H, k]."""
        nodes, depth, heads = self.residuals.shape
        dots = dot(self.graph, self.residuals.view(nodes, depth * heads), values.repeat(1, depth))
        return dots.view(-1, depth, heads).transpose(1, 2)

    def add(self, residual: Tensor, image: Tensor) -> None:
        slot = self.count % self.depth
        self.residuals[:, slot], self.images[:, slot] = residual, image
        self.gram[..., slot, :] = self.gram[..., :, slot] = self._dots(residual)
        self.count += 1

    def correction(self, r: Tensor, trusted: Tensor) -> Tensor:
        """sum_k g_k dT_k with g = argmin |r - sum_k g_k dr_k|, by slightly regularised normal equations; zero where not trusted."""
        scale = self.gram.diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True).clamp(min=1e-300)
        ridge = 1e-12 * torch.eye(self.depth, dtype=torch.float64, device=r.device)
        mix = torch.linalg.solve(self.gram / scale.unsqueeze(-1) + ridge, self._dots(r) / scale)  # [G, H, k]
        mix = torch.where(trusted.unsqueeze(-1) & torch.isfinite(mix), mix, 0.0)
        return (self.graph.spread(mix.to(r.dtype)).transpose(1, 2) * self.images).sum(1)
