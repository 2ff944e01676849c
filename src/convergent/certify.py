"""How far an answer can be from the true fixed point.

For any x, |x - x*| <= amplification * |T(x) - x|. The defect is evaluated in float64 and the rounding of that evaluation is added,
so the bound holds for the numbers as they stand in memory, not only in exact arithmetic. What is certified is the answer as it is
returned: an answer in float32 by its own defect, or by that of the x it was rounded from and the distance between the two.

- plain: amplification = 1 / (1 - c), from the contraction c of that graph and head;
- tight: T is dominated by a non-negative matrix M, |T(x) - T(y)| <= M |x - y| (M = |W| for a linear map of either sign). Any v > 0
  with q = v - M v > 0 gives |x - x*| <= max|defect| * v / min(q), because I - M is an M-matrix: amplification = max(v) / min(q).
  With v near (I - M)^-1 1 that is the smallest factor there is, and it stays small where c is close to one only in places.

The adjoint contracts in the 1-norm; the same v, of the transposed operator, serves it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from convergent.graph import Graph
from convergent.kernels import certificate
from convergent.maps import FixedPointMap, LinearMap
from convergent.maps.base import max_degree

CERTIFICATES = ("auto", "plain", "tight")


def gap(fixed: FixedPointMap) -> float:
    """How much rounding may change a bound relative to itself, in whatever order norms are summed."""
    return torch.finfo(torch.float64).eps * (fixed.graph.num_nodes + 16)


def plain_amplification(contraction: Tensor, gap: float = 0.0) -> Tensor:
    """1 / (1 - c), [G, H], and a little more for what rounding does to the bound; infinite where rows sum to one or more."""
    return (1 + gap) / (1 - contraction).clamp(min=0)


def tight_amplification(dominating: LinearMap, v: Tensor) -> Tensor:
    """max(v) / min(v - M v) of every graph and head, [G, H]; infinite where v proves nothing. ``dominating`` is x -> M x + 1."""
    graph = dominating.graph
    return certificate.tight(graph.rows, graph.segments, dominating.weight, v.double(), dominating.contraction, unit(graph))


def rounding(fixed: FixedPointMap, contraction: Tensor, size: Tensor, bias_size: Tensor) -> Tensor:
    """What float64 arithmetic may add to the norm of the defect, [G, H]; the map's contraction is given where the sizes are.

    A row of d products and a bias is off by at most (d + 2) u (c |x| + |b|), where u is half a unit in the last place (Higham 2002,
    section 3.1); the subtraction of x from something close to it is exact. An activation adds a few units of its own.
    """
    error = unit(fixed.graph) * (contraction * size + bias_size)
    return error if fixed.linear else 1.2 * error + 4 * torch.finfo(torch.float64).eps * size


def unit(graph: Graph) -> float:
    """What rounding adds to a defect, for a product and a bias that are of size one together."""
    return torch.finfo(torch.float64).eps / 2 * (max_degree(graph) + 2)
