"""Sparse elimination of I - W without pivoting: one factorisation serves the answer, its adjoint and its certificate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from convergent import factors
from convergent.graph import Graph
from convergent.kernels.elimination import Factors
from convergent.maps import FixedPointMap, LinearMap
from convergent.solvers.solver import Burst, Solver

NEAR = 0.999  # contraction above which steps may be slow


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


def eliminates(fixed: FixedPointMap) -> bool:
    """Whether a map is so close to one that steps are slow, and its factors do not fill up too much."""
    return isinstance(fixed, LinearMap) and near_one(fixed) and factors.affordable(_rows_of(fixed), fixed.heads)


def heads_at_once(fixed: FixedPointMap) -> int:
    """How many heads are solved together: where rows sum to one or more only factors prove a bound, and those of many heads are
    too much at once. A batch of torch.func.vmap is such heads."""
    if fixed.heads == 1 or not isinstance(fixed, LinearMap) or fixed.contraction.is_cuda:
        return fixed.heads
    if not bool((fixed.contraction >= 1).any()):
        return fixed.heads
    return factors.heads_at_once(_rows_of(fixed))


def near_one(fixed: FixedPointMap) -> bool:
    return not fixed.contraction.is_cuda and bool((fixed.contraction > NEAR).any())


def _rows_of(fixed: LinearMap) -> Graph:
    """The structure whose rows sum to less than one: an adjoint has it the other way round."""
    return fixed.graph if fixed.norm == "max" else fixed.graph.transpose()
