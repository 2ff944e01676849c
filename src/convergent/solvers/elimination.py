"""Sparse elimination of I - W without pivoting: one factorisation serves the answer, its adjoint and its certificate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from convergent import factors
from convergent.graph import Graph
from convergent.kernels.elimination import Factors
from convergent.maps import FixedPointMap, LinearMap
from convergent.solvers import cost
from convergent.solvers.solver import Burst, Solver

SLOW = 0.95  # contraction up to which plain steps are few, however uneven the weights
NEAR = 1 - 1e-6  # contraction above which 1 / (1 - c) is a poor certificate


@dataclass(frozen=True)
class Elimination(Solver):
    """Factorises I - W of every graph and head without pivoting, sparse and in float64.

    The order of elimination is found once per graph structure. Where no weight is negative, pivots are sums of positive numbers
    (Grassmann, Taksar and Heyman), so that the answer is accurate however close to one the rows are. Best where rows sum to almost
    one and graphs are not too well connected: pores, grids, roads. The gradient uses the same factors.
    """

    only_linear = True

    def burst(self, fixed: FixedPointMap, start: Tensor | None, goal: Tensor, limit: int) -> Burst:
        assert isinstance(fixed, LinearMap)
        assert start is None
        known = factors_of(fixed)
        x = known.solve_transposed(fixed.bias) if fixed.norm == "one" else known.solve(fixed.bias)
        return Burst(x, torch.isfinite(goal).any(1).long())


def factors_of(fixed: LinearMap) -> Factors:
    """The factors of a map, which are those of its transpose and of maps with the same weights and another bias."""
    return factors.factors_of(_rows_of(fixed), fixed.weight)


def eliminates(fixed: FixedPointMap, slow: bool = False) -> bool:
    """Whether elimination is the way to solve a map on the CPU.

    It is where its factors are known already, and where it is estimated to take less time than iterations. Very near one only
    factors certify an answer: there it is wherever they do not fill up too much.

    Args:
        fixed: the map.
        slow: deflated steps are known to converge slowly on it.
    """
    if not isinstance(fixed, LinearMap) or fixed.contraction.is_cuda or not fixed.contraction.numel():
        return False
    graph, heads = _rows_of(fixed), fixed.heads
    if factors.known(graph, fixed.weight):
        return True
    contraction = float(fixed.contraction.max())
    if contraction > NEAR:
        return factors.affordable(graph, heads)
    spread = contraction > SLOW and cost.uneven(fixed.weight)
    limit = cost.iterations(graph, heads, contraction, slow, spread)
    # what is known before the symbolic step is rough; where weights are uneven it is the better risk
    if min(cost.elimination(graph, heads), cost.analysis(graph) if spread else float("inf")) > limit:
        return False
    return factors.affordable(graph, heads) and cost.elimination(graph, heads, factors.symbolic_of(graph)) <= limit


def near_one(fixed: FixedPointMap) -> bool:
    """Whether some row of a map on the CPU is so close to one that only factors certify its answer."""
    return not fixed.contraction.is_cuda and bool((fixed.contraction > NEAR).any())


def _rows_of(fixed: LinearMap) -> Graph:
    """The structure whose rows sum to less than one: an adjoint has it the other way round."""
    return fixed.graph if fixed.norm == "max" else fixed.graph.transpose()
