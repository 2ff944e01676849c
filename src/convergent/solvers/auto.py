"""Auto: the method that fits the map."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

from convergent.kernels.reference import TRIAL
from convergent.maps import FixedPointMap, LinearMap
from convergent.solvers.anderson import Anderson
from convergent.solvers.bicgstab import BiCGStab
from convergent.solvers.deflated import Deflated
from convergent.solvers.direct import DENSE_NODES, Direct
from convergent.solvers.elimination import NEAR, Elimination, eliminates, expected_near, factorised, near_one
from convergent.solvers.multigrid import Multigrid
from convergent.solvers.picard import Picard
from convergent.solvers.solver import Solver

FEW_STEPS = 40  # below this nothing beats plain Picard
# steps of small graphs in one call, where a dense LU is an alternative and where it is not
SETTLES = {"cpu": (192, 192), "cuda": (1024, 16384)}
TRIALS = {"cpu": (16, 16), "cuda": (2048, 256)}  # deflated steps to judge by on light and on heavy problems
HEAVY = 4_000_000  # weights of a heavy problem: a step on a GPU takes longer than its launch


@dataclass(frozen=True)
class Auto(Solver):
    """Chooses the method by the number of Picard steps needed, the graphs, the weights, and the observed convergence.

    On the CPU a linear map is solved by ``Elimination`` where that is estimated to take less time than iterations, and very near
    one wherever factors do not fill up too much. Factors that are known already are used.
    """

    settles = SETTLES["cpu"][0]

    def settling(self, fixed: FixedPointMap) -> int:
        """A GPU has taken a thousand steps before another method has begun. Elimination needs none of them."""
        if fixed.linear and not fixed.contraction.is_cuda and (near_one(fixed) or factorised(fixed)):
            return 0
        dense, other = SETTLES[_kind(fixed)]
        return dense if fixed.graph.largest <= DENSE_NODES else other

    def eliminates(self, fixed: LinearMap) -> bool:
        # a GPU tries steps first, for which the host need not wait
        return expected_near(fixed) if fixed.contraction.is_cuda else eliminates(fixed)

    def near(self) -> float:
        return NEAR["cuda"]

    def plan(self, fixed: FixedPointMap, picard_steps: float) -> list[Solver]:
        return suggest(fixed, picard_steps)


@singledispatch
def suggest(fixed: FixedPointMap, picard_steps: float) -> list[Solver]:
    """The methods to try on this kind of map, in order. Register another plan for a new kind of map with ``suggest.register``.

    Args:
        fixed: the map, whose class selects the plan.
        picard_steps: number of Picard steps that would reach the tolerance.
    """
    return [Picard()] if picard_steps <= FEW_STEPS else [Anderson(), Picard()]


@suggest.register
def _(fixed: LinearMap, picard_steps: float) -> list[Solver]:
    if picard_steps <= FEW_STEPS:
        return [Picard()]
    dense = fixed.graph.largest <= DENSE_NODES
    tried = fixed.graph.small is None  # deflated steps, in one call
    if eliminates(fixed, slow=tried and not dense):
        return [*([Deflated(trial=TRIAL)] if fixed.contraction.is_cuda else []), Elimination(), Picard()]
    if dense:
        return [Direct(), Picard()]
    light, heavy = TRIALS[_kind(fixed)]
    trial = light if fixed.graph.num_edges * fixed.heads <= HEAVY else heavy
    return [Deflated(trial=trial), Multigrid(), BiCGStab(), Picard()]


def _kind(fixed: FixedPointMap) -> str:
    return "cuda" if fixed.device.type == "cuda" else "cpu"
