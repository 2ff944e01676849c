"""Sparse elimination of I - W without pivoting: one factorisation serves the answer, its adjoint and its certificate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from convergent import certify, factors
from convergent.graph import Graph
from convergent.kernels.elimination import Factors
from convergent.maps import FixedPointMap, LinearMap
from convergent.solvers.solution import Solution, Status, used_methods
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

    def eliminates(self, fixed: LinearMap) -> bool:
        return True

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
    return isinstance(fixed, LinearMap) and near_one(fixed) and affordable(fixed)


def affordable(fixed: LinearMap) -> bool:
    """Whether the factors of a map do not fill up too much."""
    return factors.affordable(_rows_of(fixed), fixed.heads)


def near_one(fixed: FixedPointMap) -> bool:
    return bool((fixed.contraction > NEAR).any())


def _rows_of(fixed: LinearMap) -> Graph:
    """The structure whose rows sum to less than one: an adjoint has it the other way round."""
    return fixed.graph if fixed.norm == "max" else fixed.graph.transpose()


def sharpest(fixed: LinearMap, v: Tensor | None = None) -> Tensor:
    """The smaller of the plain and the tight factor from residual to error, [G, H], kept with the factors of the map.

    ``v`` = (I - W)^-1 1 proves it where no weight is negative; elsewhere, most often, only (I - |W|)^-1 1 does.
    """
    known = factors_of(fixed)
    if known.sharpest is None:
        dominating = fixed.dominating()
        wide = dominating.widened()
        tight = certify.tight_amplification(wide, known.solve(wide.bias) if v is None else v)
        if not bool(torch.isfinite(tight).all()):
            tight = certify.tight_amplification(wide, factors_of(dominating).solve(wide.bias))
        known.sharpest = torch.minimum(certify.plain_amplification(fixed.contraction), tight)
    return known.sharpest


def certified(solver: Solver, fixed: LinearMap, tol: Tensor | None) -> Solution | None:
    """The certified fixed point of all graphs by elimination, in one go; None: some bound is above the tolerance."""
    known, gap, sharp = factors_of(fixed), certify.gap(fixed), solver.certify != "plain"
    if fixed.norm == "one":
        x = known.solve_transposed(fixed.bias)
    elif sharp and known.sharpest is None:
        x, v = known.solve(torch.stack([fixed.bias.double(), torch.ones_like(fixed.bias, dtype=torch.float64)]))
        sharpest(fixed, v)
    else:
        x = known.solve(fixed.bias)
    factor = (1 + gap) * (sharpest(fixed) if sharp else certify.plain_amplification(fixed.contraction))
    residual, size = fixed.size(fixed.defect(x)), fixed.size(x)
    slack = certify.rounding(fixed, fixed.contraction, size, fixed.magnitude())
    bound, value = (residual + slack) * factor, x
    if fixed.dtype != torch.float64 and not solver.refine:
        value = x.to(fixed.dtype)
        distance = fixed.size(value - x)
        residual, size = fixed.size(fixed.defect(value)), fixed.size(value)
        bound = torch.fmin(bound + distance, (residual + slack) * factor)
    absolute, relative = solver.tolerances(fixed.dtype) if tol is None else (tol, 0.0)
    if not bool((bound <= (1 - gap) * (absolute + relative * size)).all()):
        return None
    status = torch.full_like(bound, Status.CONVERGED, dtype=torch.int8)
    steps = torch.ones(fixed.graph.num_graphs, dtype=torch.long, device=fixed.device)
    return Solution(value, residual, bound, status, steps, used_methods(("Elimination",), fixed.device))
