"""Sparse elimination of I - W without pivoting: one factorisation serves the answer, its adjoint and its certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from weakref import ReferenceType, ref

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from convergent.graph import Graph
from convergent.kernels.elimination import Factors, Symbolic, analyse, factor
from convergent.maps import FixedPointMap, LinearMap
from convergent.maps.base import version
from convergent.solvers.solver import Burst, Solver

NEAR = 0.999  # contraction above which steps may be slow
MOST = 1e10  # multiply-adds of all heads: a second or so on one core


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
        factors = factors_of(fixed)
        x = factors.solve_transposed(fixed.bias) if fixed.norm == "one" else factors.solve(fixed.bias)
        return Burst(x, torch.isfinite(goal).any(1).long())


class _Known(NamedTuple):
    """Factors of a weight tensor, as long as neither it nor the structure has changed."""

    version: int | None
    graph: ReferenceType[Graph]
    factors: Factors


_known = WeakTensorKeyDictionary()  # weight -> _Known


def factors_of(fixed: LinearMap) -> Factors:
    """The factors of a map, made once for it, for its transpose and for maps with the same weights and another bias."""
    graph, weight = _rows_of(fixed), fixed.weight
    known = _known.get(weight)
    if known is None or known.graph() is not graph or known.version != version(weight):
        factors, _ = factor(symbolic_of(graph), weight)
        known = _known[weight] = _Known(version(weight), ref(graph), factors)
    return known.factors


def symbolic_of(graph: Graph) -> Symbolic:
    """The order of elimination and the fill of a structure, found once."""
    return graph.cached("symbolic", lambda: analyse(graph.rows, graph.segments, MOST))


def eliminates(fixed: FixedPointMap) -> bool:
    """Whether a map is so close to one that steps are slow, and its factors do not fill up too much."""
    return isinstance(fixed, LinearMap) and near_one(fixed) and affordable(fixed)


def near_one(fixed: FixedPointMap) -> bool:
    return not fixed.contraction.is_cuda and bool((fixed.contraction > NEAR).any())


def affordable(fixed: LinearMap) -> bool:
    """Whether the factors of this map do not fill up too much. Of a large graph that does this costs a moment to find out."""
    return float(symbolic_of(_rows_of(fixed)).flops.sum()) * fixed.heads <= MOST


def _rows_of(fixed: LinearMap) -> Graph:
    """The structure whose rows sum to less than one: an adjoint has it the other way round."""
    return fixed.graph if fixed.norm == "max" else fixed.graph.transpose()
