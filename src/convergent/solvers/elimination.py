"""Sparse elimination of I - W without pivoting: one factorisation serves the answer, its adjoint and its certificate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from convergent import certify, factors
from convergent.graph import Graph
from convergent.kernels import Accuracy, certificate
from convergent.kernels.elimination import Factors
from convergent.maps import FixedPointMap, LinearMap
from convergent.solvers import cost
from convergent.solvers.solution import Solution, used_methods
from convergent.solvers.solver import Burst, Solver

SLOW = 0.95  # contraction up to which plain steps are few, however uneven the weights
# contraction above which elimination is chosen if it can be: 1 / (1 - c) is a poor certificate; a GPU would need too many steps
NEAR = {"cpu": 1 - 1e-6, "cuda": 0.999}


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
        _rows_of(fixed).cache["near one"] = True
        x = known.solve_transposed(fixed.bias) if fixed.norm == "one" else known.solve(fixed.bias)
        return Burst(x, torch.isfinite(goal).any(1).long())


def factors_of(fixed: LinearMap) -> Factors:
    """The factors of a map, which are those of its transpose and of maps with the same weights and another bias."""
    return factors.factors_of(_rows_of(fixed), fixed.weight)


def eliminates(fixed: FixedPointMap, slow: bool = False) -> bool:
    """Whether elimination is the way to solve a map.

    On the CPU it is where its factors are known already, and where it is estimated to take less time than iterations. Very near
    one only factors certify an answer: there it is wherever they do not fill up too much, as it is on a GPU.

    Args:
        fixed: the map.
        slow: deflated steps are known to converge slowly on it.
    """
    if not isinstance(fixed, LinearMap) or not fixed.contraction.numel():
        return False
    graph, heads = _rows_of(fixed), fixed.heads
    if fixed.contraction.is_cuda:
        return near_one(fixed) and factors.affordable(graph, heads)
    contraction = float(fixed.contraction.max())
    if not slow and cost.few_steps(graph, heads, contraction):
        return False
    if factors.known(graph, fixed.weight):
        return True
    if contraction > NEAR["cpu"]:
        return factors.affordable(graph, heads)
    spread = contraction > SLOW and cost.uneven(fixed.weight)
    limit = cost.iterations(graph, heads, contraction, slow, spread)
    # what is known before the symbolic step is rough; where weights are uneven it is the better risk
    if min(cost.elimination(graph, heads), cost.analysis(graph) if spread else float("inf")) > limit:
        return False
    return factors.affordable(graph, heads) and cost.elimination(graph, heads, factors.symbolic_of(graph)) <= limit


def affordable(fixed: LinearMap) -> bool:
    """Whether the factors of a map do not fill up too much."""
    return factors.affordable(_rows_of(fixed), fixed.heads)


def factorised(fixed: FixedPointMap) -> bool:
    """Whether the factors of a map have been made."""
    return isinstance(fixed, LinearMap) and factors.known(_rows_of(fixed), fixed.weight)


def heads_at_once(fixed: FixedPointMap) -> int:
    """How many heads are solved together: where rows sum to one or more only factors prove a bound, and those of many heads are
    too much at once. A batch of torch.func.vmap is such heads."""
    if fixed.heads == 1 or not isinstance(fixed, LinearMap) or fixed.contraction.is_cuda:
        return fixed.heads
    if not bool((fixed.contraction >= 1).any()):
        return fixed.heads
    return factors.heads_at_once(_rows_of(fixed))


def near_one(fixed: FixedPointMap) -> bool:
    """Whether some row is so close to one that, if they can be had, factors are what solves a map."""
    return bool((fixed.contraction > NEAR["cuda" if fixed.contraction.is_cuda else "cpu"]).any())


def expected_near(fixed: LinearMap) -> bool:
    """Whether the last weights of this structure were near one: to look at these would make the host wait for a GPU."""
    return bool(_rows_of(fixed).cache.get("near one", False))


def _rows_of(fixed: LinearMap) -> Graph:
    """The structure whose rows sum to less than one: an adjoint has it the other way round."""
    return fixed.graph if fixed.norm == "max" else fixed.graph.transpose()


def sharpest(fixed: LinearMap) -> Tensor:
    """The smaller of the plain and the tight factor from residual to error, [G, H], kept with the factors of the map."""
    return _with_signs(fixed) if _has_signs(fixed) else _without_signs(fixed)


def _proven(fixed: LinearMap, v: Tensor) -> Tensor:
    """What v proves."""
    rows = _rows_of(fixed)
    return certificate.sharpest(rows.rows, rows.segments, fixed.weight, v, fixed.contraction, certify.unit(rows))


def _has_signs(fixed: LinearMap) -> bool:
    return not bool((fixed.weight >= 0).all())


def _without_signs(fixed: LinearMap) -> Tensor:
    """What (I - W)^-1 1 proves: the most that there is where no weight is negative."""
    known = factors_of(fixed)
    if known.sharpest is None:
        known.sharpest = _proven(fixed, known.solve(torch.ones_like(fixed.bias)))
    return known.sharpest


def _with_signs(fixed: LinearMap) -> Tensor:
    """What (I - |W|)^-1 1 proves, for one more factorisation."""
    known = factors_of(fixed)
    if not known.with_signs:
        dominating = fixed.dominating()
        known.sharpest = _proven(fixed, factors_of(dominating).solve(dominating.bias))
        known.with_signs = True
    assert known.sharpest is not None
    return known.sharpest


def certified(solver: Solver, fixed: LinearMap, tol: Tensor | None) -> Solution | None:
    """The certified fixed point of all graphs by elimination, in one go; None: some bound is above the tolerance."""
    known, gap, sharp = factors_of(fixed), certify.gap(fixed), solver.certify != "plain"
    if fixed.norm == "one":
        x = known.solve_transposed(fixed.bias)
    elif sharp and known.sharpest is None:
        x, v = known.solve(torch.stack([fixed.bias, torch.ones_like(fixed.bias)]))
        known.sharpest = _proven(fixed, v)
    else:
        x = known.solve(fixed.bias)
    factor = _without_signs(fixed) if sharp else certify.plain_amplification(fixed.contraction)
    solution = _checked(solver, fixed, x, factor, tol, gap)
    if solution is None and sharp and not known.with_signs and _has_signs(fixed):  # to look at signs takes time, on a GPU most
        solution = _checked(solver, fixed, x, _with_signs(fixed), tol, gap)
    return solution


def _checked(solver: Solver, fixed: LinearMap, x: Tensor, factor: Tensor, tol: Tensor | None, gap: float) -> Solution | None:
    """x as a solution, unless some bound is above the tolerance."""
    absolute, relative = solver.tolerances(fixed.dtype) if tol is None else (tol, 0.0)
    strict = absolute * (1 - gap), relative * (1 - gap)
    accuracy = Accuracy(
        fixed.contraction, (1 + gap) * factor, *strict, certify.unit(fixed.graph), solver.refine, 1, gap, NEAR["cuda"]
    )
    graph = fixed.graph
    found, met, near = certificate.certify(graph.rows, graph.segments, fixed.weight, fixed.bias, x, fixed.norm, accuracy)
    _rows_of(fixed).cache["near one"] = near
    # the same numbers, but for torch no view of all that was solved for: in forward mode a function may return no views
    return Solution(*found._replace(value=found.value.data), used_methods(("Elimination",), fixed.device)) if met else None
