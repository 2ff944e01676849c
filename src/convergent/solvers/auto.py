"""Auto: the method that fits the map."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

from convergent.maps import FixedPointMap, LinearMap
from convergent.solvers.anderson import Anderson
from convergent.solvers.bicgstab import BiCGStab
from convergent.solvers.deflated import Deflated
from convergent.solvers.direct import DENSE_NODES, Direct
from convergent.solvers.multigrid import Multigrid
from convergent.solvers.picard import Picard
from convergent.solvers.solver import Solver

FEW_STEPS = 40  # below this nothing beats plain Picard


@dataclass(frozen=True)
class Auto(Solver):
    """Picks by the number of Picard steps the contraction calls for, the size of the graphs, and what is seen on the way."""

    settles = 192  # deflated steps, after which a small graph is worth a direct solve

    def plan(self, fixed: FixedPointMap, picard_steps: float) -> list[Solver]:
        return suggest(fixed, picard_steps)


@singledispatch
def suggest(fixed: FixedPointMap, picard_steps: float) -> list[Solver]:
    """The methods to try on this kind of map, in order. A new kind of map registers its own."""
    return [Picard()] if picard_steps <= FEW_STEPS else [Anderson(), Picard()]


@suggest.register
def _(fixed: LinearMap, picard_steps: float) -> list[Solver]:
    if picard_steps <= FEW_STEPS:
        return [Picard()]
    if fixed.graph.largest <= DENSE_NODES:
        return [Direct(), Picard()]  # deflated steps have been tried
    return [Deflated(trial=16), Multigrid(), BiCGStab(), Picard()]
