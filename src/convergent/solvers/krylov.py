"""What the Krylov methods share: inner products and updates for every graph and head on its own."""

from __future__ import annotations

import torch
from torch import Tensor

from convergent.graph import Graph
from convergent.kernels import backend
from convergent.maps import LinearMap


def dot(graph: Graph, u: Tensor, v: Tensor) -> Tensor:
    """[G, H] in float64."""
    return backend(u).segment_dot(u, v, graph.segments)


def apply(fixed: LinearMap, x: Tensor) -> Tensor:
    """(I - W) x."""
    return x - backend(x).propagate(fixed.graph.rows, fixed.weight, x)


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """A quotient that is zero where the denominator has vanished: a lane that broke down stands still."""
    safe = torch.isfinite(numerator) & torch.isfinite(denominator) & (denominator.abs() > 1e-300)
    return torch.where(safe, numerator / torch.where(safe, denominator, 1.0), 0.0)
