"""The fixed point of a map: ``solve``."""

from __future__ import annotations

from torch import Tensor

from convergent.errors import InputError, expect
from convergent.implicit import Implicit, OneStep, Unrolled
from convergent.maps import FixedPointMap
from convergent.solvers import Auto, Solution, Solver


def solve(
    fixed: FixedPointMap,
    solver: Solver | None = None,
    x0: Tensor | None = None,
    gradient: Implicit | OneStep | Unrolled | None = None,
) -> Solution:
    """Compute the fixed point of a contracting map, with a certified error bound, differentiable in the map's parameters.

    Args:
        fixed: a ``LinearMap`` or ``ActivatedMap`` (or another ``FixedPointMap``).
        solver: the method and its settings; ``Auto()`` by default.
        x0: where to start, [N, H]; zero by default. It changes the number of steps, not the answer.
        gradient: ``Implicit()`` by default; ``OneStep()`` and ``Unrolled()`` are for comparison.

    Raises:
        ConvergenceError: the error bound is above the tolerance and ``solver.throw`` is set.

    Example:
        >>> import torch
        >>> from convergent import Graph, LinearMap, solve
        >>> graph = Graph(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> weight = torch.full((2, 1), 0.5, dtype=torch.float64)
        >>> bias = torch.ones(2, 1, dtype=torch.float64)
        >>> solution = solve(LinearMap(graph, weight, bias))
        >>> [round(x, 5) for x in solution.value.flatten().tolist()]
        [2.0, 2.0]
        >>> bool((solution.error_bound <= 1e-6).all())
        True
    """
    solver = Auto() if solver is None else solver
    if not isinstance(solver, Solver):
        raise InputError(f"solver: expected a solver such as Auto(tol=1e-6), but got {solver!r}")
    if not isinstance(fixed, FixedPointMap):
        raise InputError(f"fixed: expected a map such as LinearMap, but got {type(fixed).__name__}")
    if x0 is not None:
        fixed.expect_nodes("x0", x0)
        expect(x0.dtype == fixed.dtype, "x0", f"{fixed.dtype}, as the map has", x0.dtype)
        x0 = x0.detach()
    return (gradient or Implicit()).attach(fixed, solver, x0)
