"""convergent: maps on graphs that are certain to converge, their fixed points with a certificate, and exact gradients.

Names are imported on first use: the command line answers ``--help`` without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from convergent import weights
    from convergent.errors import ContractionError, ConvergenceError, InputError
    from convergent.fixed_point import solve
    from convergent.graph import Graph
    from convergent.implicit import Implicit, OneStep, Unrolled
    from convergent.maps import ActivatedMap, FixedPointMap, LinearMap
    from convergent.solvers import (
        GMRES,
        Anderson,
        Auto,
        BiCGStab,
        Deflated,
        Direct,
        Elimination,
        Multigrid,
        Picard,
        Solution,
        Status,
    )

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
    "Elimination",
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

_MODULES = {
    "errors": ("ContractionError", "ConvergenceError", "InputError"),
    "fixed_point": ("solve",),
    "graph": ("Graph",),
    "implicit": ("Implicit", "OneStep", "Unrolled"),
    "maps": ("ActivatedMap", "FixedPointMap", "LinearMap"),
    "solvers": (
        "GMRES",
        "Anderson",
        "Auto",
        "BiCGStab",
        "Deflated",
        "Direct",
        "Elimination",
        "Multigrid",
        "Picard",
        "Solution",
        "Status",
    ),
}
_PACKAGES = ("baselines", "maps", "nn", "solvers", "tasks", "weights")  # reached as convergent.nn, without an import of their own
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"convergent.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'convergent' has no attribute {name!r}")
    value = getattr(import_module(f"convergent.{_HOME[name]}"), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_PACKAGES})
