"""The gradient of a fixed point.

With x* = T(x*, p) and J = dT/dx at x*, the implicit function theorem gives (eq. 11 of the paper)

    reverse   v = J^T v + g       then  dp = v . dT/dp      one linear solve with the transposed map, in the 1-norm
    forward   dx = J dx + dT/dp . dp                        one linear solve with the map itself

Both are fixed points of linear maps, so they are solved, certified and differentiated by the same code: gradients exist to any
order, and memory does not grow with the number of iterations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from convergent.graph import Graph
from convergent.maps import FixedPointMap
from convergent.solvers import Solution, Solver, run, decoded


@dataclass(frozen=True)
class Implicit:
    """The exact gradient, to the tolerance.

    Args:
        solver: how the adjoint is solved; None: as the forward problem, with its tolerance taken relative to the adjoint's size.
        on_adjoint: called with the ``Solution`` of every adjoint solve, whose certificate is in the 1-norm.
    """

    solver: Solver | None = None
    on_adjoint: Callable[[Solution], None] | None = None

    def attach(self, fixed: FixedPointMap, solver: Solver, x0: Tensor | None) -> Solution:
        return fixed_point(fixed, solver, x0, self.solver or relative(solver), self.on_adjoint)


@dataclass(frozen=True)
class OneStep:
    """The gradient of one application of T at the fixed point: cheap, and wrong by a factor of order c (Bolte et al. 2023)."""

    def attach(self, fixed: FixedPointMap, solver: Solver, x0: Tensor | None) -> Solution:
        solution = run(solver, fixed.detached(), x0)
        return dataclasses.replace(solution, value=fixed(solution.value.to(fixed.dtype)))


@dataclass(frozen=True)
class Unrolled:
    """The gradient through the Picard steps themselves; memory grows with every one of them.

    Args:
        steps: how many; None: as many as a Picard solve to the tolerance takes.
    """

    steps: int | None = None

    def attach(self, fixed: FixedPointMap, solver: Solver, x0: Tensor | None) -> Solution:
        from convergent.solvers import Picard

        shared = {name: getattr(solver, name) for name in ("tol", "rtol", "max_iterations", "throw", "certify")}
        picard = Picard(**shared) if self.steps is None else Picard(**{**shared, "max_iterations": self.steps, "throw": False})
        solution = run(picard, fixed.detached(), x0)
        x = torch.zeros_like(fixed.at_zero()) if x0 is None else x0
        for _ in range(solution.iterations + 1 if self.steps is None else self.steps):
            x = fixed(x)
        return dataclasses.replace(solution, value=x)


def relative(solver: Solver) -> Solver:
    """The solver of an adjoint: gradients have no scale of their own, so the tolerance is relative to their size."""
    return dataclasses.replace(solver, tol=0.0, rtol=max(solver.tolerances(torch.float64)), certify="plain", refine=False)


@dataclass(frozen=True)
class _Problem:
    """Everything about a fixed point but its tensors."""

    graph: Graph
    kind: str
    settings: str
    norm: str
    solver: Solver
    adjoint: Solver
    on_adjoint: Callable[[Solution], None] | None

    def map(self, parameters: tuple[Tensor, ...], contraction: Tensor) -> FixedPointMap:
        kind = FixedPointMap.kinds[self.kind]
        return kind.restore(self.graph, list(parameters), contraction, self.norm, self.settings)


def fixed_point(
    fixed: FixedPointMap,
    solver: Solver,
    x0: Tensor | None,
    adjoint: Solver,
    on_adjoint: Callable[[Solution], None] | None = None,
) -> Solution:
    """The differentiable primitive: the solution of a map, with implicit derivatives in its parameters."""
    problem = _Problem(
        fixed.graph,
        type(fixed).__name__,
        fixed.settings(),
        fixed.norm,
        solver,
        adjoint,
        on_adjoint,
    )
    function = _FixedPoint if torch.compiler.is_compiling() else _FixedPointForward
    return Solution(*function.apply(problem, x0, fixed.contraction, *fixed.parameters()))


def _run(problem: _Problem, x0: Tensor | None, contraction: Tensor, parameters: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    if torch.compiler.is_compiling():
        texts = (problem.graph.flow, problem.kind, problem.settings, problem.norm, problem.solver.encoded())
        return torch.ops.convergent.fixed_point(problem.graph.tensors(), *texts, contraction, list(parameters), x0)
    with torch.no_grad(), torch.autocast(contraction.device.type, enabled=False):
        solution = run(problem.solver, problem.map(parameters, contraction), x0)
    return solution.tensors()


class _FixedPoint(torch.autograd.Function):
    @staticmethod
    def forward(problem: _Problem, x0: Tensor | None, contraction: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        return _run(problem, x0, contraction, parameters)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.problem, _, contraction, *parameters = inputs
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(output[0], contraction, *parameters)
        ctx.save_for_forward(output[0], contraction, *parameters)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        value, contraction, *parameters = ctx.saved_tensors
        if grad is None:
            return (None,) * (3 + len(parameters))
        problem = ctx.problem
        fixed = problem.map(parameters, contraction)
        x = value.to(fixed.dtype)
        solver = problem.adjoint
        adjoint = fixed_point(fixed.transpose(grad.to(fixed.dtype), at=x), solver, None, solver)
        if problem.on_adjoint is not None:
            problem.on_adjoint(adjoint)
        return (None, None, None, *fixed.pullback(x, adjoint.value))


class _FixedPointForward(_FixedPoint):
    """With forward mode, which torch.compile does not trace."""

    @staticmethod
    def jvp(ctx: Any, _: None, __: None, ___: None, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        value, contraction, *parameters = ctx.saved_tensors
        problem = ctx.problem
        fixed = problem.map(parameters, contraction)
        x = value.to(fixed.dtype)
        solver = problem.adjoint
        moved = fixed.pushforward(x, tangents)
        tangent = fixed_point(fixed.linearize(x).with_bias(moved), solver, None, solver).value
        return (tangent.to(value.dtype), *(None,) * 5)


@torch.library.custom_op("convergent::fixed_point", mutates_args=())
def _fixed_point_op(
    graph: list[Tensor],
    flow: str,
    kind: str,
    settings: str,
    norm: str,
    solver: str,
    contraction: Tensor,
    parameters: list[Tensor],
    x0: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    parts = (Graph.from_tensors(graph, flow), parameters, contraction, norm, settings)
    with torch.autocast(contraction.device.type, enabled=False):
        return run(decoded(solver), FixedPointMap.kinds[kind].restore(*parts), x0).tensors()  # type: ignore[return-value]


@_fixed_point_op.register_fake
def _(
    graph: list[Tensor],
    flow: str,
    kind: str,
    settings: str,
    norm: str,
    solver: str,
    contraction: Tensor,
    parameters: list[Tensor],
    x0: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    from convergent.solvers.solution import METHODS

    like = parameters[-1]
    dtype = torch.float64 if decoded(solver).refine else like.dtype
    per_graph = torch.empty_like(contraction)
    return (
        torch.empty_like(like, dtype=dtype),
        per_graph,
        torch.empty_like(per_graph),
        torch.empty_like(per_graph, dtype=torch.int8),
        per_graph.new_empty(per_graph.shape[0], dtype=torch.long),
        per_graph.new_empty(len(METHODS), dtype=torch.bool),
    )
