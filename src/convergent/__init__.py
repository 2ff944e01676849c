"""convergent: maps on graphs that are certain to converge, their fixed points with a certificate, and exact gradients."""

from convergent import weights
from convergent.errors import ContractionError, ConvergenceError, InputError
from convergent.graph import Graph
from convergent.implicit import Implicit, OneStep, Unrolled
from convergent.maps import ActivatedMap, FixedPointMap, LinearMap
from convergent.solve import solve
from convergent.solvers import GMRES, Anderson, Auto, BiCGStab, Deflated, Direct, Multigrid, Picard, Solution, Status

__all__ = [
    "GMRES",
    "ActivatedMap",
    "Anderson",
    "Auto",
    "BiCGStab",
    "ContractionError",
    "ConvergenceError",
    "Deflated",
    "Direct",
    "FixedPointMap",
    "Graph",
    "Implicit",
    "InputError",
    "LinearMap",
    "Multigrid",
    "OneStep",
    "Picard",
    "Solution",
    "Status",
    "Unrolled",
    "solve",
    "weights",
]
