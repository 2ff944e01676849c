"""Anderson acceleration (Anderson 1965; Walker and Ni 2011): extrapolation over the last few steps."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from convergent.errors import expect
from convergent.kernels import backend
from convergent.maps import FixedPointMap
from convergent.solvers.krylov import dot
from convergent.solvers.solver import Burst, Solver

STAGNATION = 60


@dataclass(frozen=True)
class Anderson(Solver):
    """x <- T(x) - sum_k g_k (differences of T(x)), where g brings the differences of the residual closest to the residual.

    Works for non-linear maps. Coefficients are those of each graph and head alone. A lane whose residual grew takes a plain step.
    """

    depth: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(isinstance(self.depth, int) and self.depth >= 1, "depth", "a whole number, 1 or more", repr(self.depth))

    def burst(self, fixed: FixedPointMap, start: Tensor | None, goal: Tensor, limit: int) -> Burst:
        graph = fixed.graph

        def widen(values: Tensor) -> Tensor:
            return graph.spread(values.to(fixed.dtype))

        x = fixed.at_zero() if start is None else start.to(fixed.dtype)
        steps = torch.zeros(len(goal), dtype=torch.long, device=x.device)
        live = torch.isfinite(goal)
        image = fixed(x)
        r = image - x
        size = fixed.size(r)
        best, best_x, stale = size, x, 0
        images: deque[Tensor] = deque(maxlen=self.depth)
        residuals: deque[Tensor] = deque(maxlen=self.depth)
        nodes = graph.segments.diff()
        enough = int(nodes[live.any(1)].sum()) // 2
        for _ in range(limit):
            live = live & (size > goal) & torch.isfinite(size)
            left = int(nodes[live.any(1)].sum())
            if left == 0 or stale > STAGNATION or (graph.num_graphs > 1 and left <= enough):
                break
            step = image
            if residuals:
                mix = _mixing(graph.segments, residuals, r)  # [G, H, k]
                trusted = (size <= best).unsqueeze(-1)
                mix = torch.where(trusted & torch.isfinite(mix), mix, 0.0)
                for k, difference in enumerate(images):
                    step = step - widen(mix[..., k]) * difference
            x_next = torch.where(widen(live.to(x.dtype)) > 0, step, x)
            image_next = fixed(x_next)
            r_next = image_next - x_next
            images.append(image_next - image)
            residuals.append(r_next - r)
            x, image, r = x_next, image_next, r_next
            steps += live.any(1)
            size = fixed.size(r)
            better = live & (size < best)
            stale = 0 if bool((size < 0.9 * best)[live].any()) else stale + 1
            best_x = torch.where(widen(better.to(x.dtype)) > 0, x, best_x)
            best = torch.where(better, size, best)
        return Burst(best_x, steps)


def _mixing(segments: Tensor, residuals: deque[Tensor], r: Tensor) -> Tensor:
    """argmin_g |r - sum_k g_k dr_k| of every lane by its normal equations, slightly regularised: [G, H, k]."""
    kernels, count = backend(r), len(residuals)
    gram = torch.stack(
        [torch.stack([kernels.segment_dot(a, b, segments) for b in residuals], -1) for a in residuals], -1
    )
    right = torch.stack([kernels.segment_dot(a, r, segments) for a in residuals], -1)
    scale = gram.diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True).clamp(min=1e-300)
    ridge = 1e-12 * torch.eye(count, dtype=gram.dtype, device=gram.device)
    return torch.linalg.solve(gram / scale.unsqueeze(-1) + ridge, right / scale)
