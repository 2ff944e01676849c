"""BiCGStab: a Krylov method for unsymmetric systems with short recurrences (van der Vorst 1992), optionally preconditioned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from convergent.kernels import backend
from convergent.maps import FixedPointMap, LinearMap
from convergent.solvers.krylov import apply, dot, ratio
from convergent.solvers.solver import Burst, Solver

STAGNATION = 60  # steps without a better residual after which a burst gives up


@dataclass(frozen=True)
class BiCGStab(Solver):
    """Solves (I - W) x = b for every graph and head with its own coefficients; a step takes two products with W."""

    only_linear = True

    def preconditioner(self, fixed: LinearMap) -> Callable[[Tensor], Tensor]:
        """x -> approximately (I - W)^-1 x; the identity here."""
        return lambda x: x

    def burst(self, fixed: FixedPointMap, start: Tensor | None, goal: Tensor, limit: int) -> Burst:
        assert isinstance(fixed, LinearMap)
        assert start is None
        graph, precondition = fixed.graph, self.preconditioner(fixed)

        def blend(a: Tensor, first: Tensor, b: Tensor, second: Tensor, c: Tensor, out: Tensor) -> Tensor:
            return backend(a).blend(a, first, b, second, c, graph.segments, out)

        x = torch.zeros_like(fixed.bias)
        r = fixed.bias.clone()
        shadow, p = r.clone(), torch.zeros_like(r)
        v, s = torch.zeros_like(r), torch.empty_like(r)
        none = torch.zeros_like(goal)
        rho = alpha = omega = torch.ones_like(goal)
        size = fixed.size(r)
        live = size > goal
        best, stale = size, 0
        steps = torch.zeros(len(goal), dtype=torch.long, device=r.device)
        nodes = graph.segments.diff()
        enough = int(nodes[live.any(1)].sum()) // 2
        for _ in range(limit):
            previous, rho = rho, dot(graph, shadow, r)
            beta = ratio(rho * alpha, previous * omega)
            p = blend(r, beta, p, -beta * omega, v, out=p)
            direction = precondition(p)
            v = apply(fixed, direction)
            alpha = torch.where(live, ratio(rho, dot(graph, shadow, v)), 0.0)
            s = blend(r, -alpha, v, none, v, out=s)
            if not bool((live & ~(fixed.size(s) <= goal)).any()):  # half a step is enough
                x = blend(x, alpha, direction, none, direction, out=x)
                steps += live.any(1)
                break
            correction = precondition(s)
            t = apply(fixed, correction)
            omega = torch.where(live, ratio(dot(graph, t, s), dot(graph, t, t)), 0.0)
            x = blend(x, alpha, direction, omega, correction, out=x)
            r = blend(s, -omega, t, none, t, out=r)  # a lane that is done has zero coefficients and stands still
            steps += live.any(1)
            size = fixed.size(r)
            live = live & (size > goal) & torch.isfinite(size) & ((alpha != 0) | (omega != 0))
            improved = bool((size < 0.9 * best)[live].any())
            best, stale = torch.minimum(best, size), 0 if improved else stale + 1
            left = int(nodes[live.any(1)].sum())
            if left == 0 or stale > STAGNATION or (graph.num_graphs > 1 and left <= enough):
                break
        return Burst(x, steps)
