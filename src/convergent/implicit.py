"""The gradient of a fixed point.

With x* = T(x*, p) and J = dT/dx at x*, the implicit function theorem gives (eq. 11 of the paper)

    reverse   v = J^T v + g       then  dp = v . dT/dp      one linear solve with the transposed map, in the 1-norm
    forward   dx = J dx + dT/dp . dp                        one linear solve with the map itself

Both are fixed points of linear maps, so they are solved, certified and differentiated by the same code: gradients exist to any
order, and memory does not grow with the number of iterations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from convergent.graph import Graph, traced
from convergent.maps import FixedPointMap
from convergent.solvers import Picard, Solution, Solver, decoded, run


@dataclass(frozen=True)
class Implicit:
    """The exact gradient, up to the tolerance, by the implicit function theorem.

    Args:
        solver: solver of the adjoint; None: that of the forward problem, with its tolerance relative to the size of the adjoint.
        on_adjoint: called with the ``Solution`` of every adjoint solve, whose certificate is in the 1-norm.
    """

    solver: Solver | None = None
    on_adjoint: Callable[[Solution], None] | None = None

    def attach(self, fixed: FixedPointMap, solver: Solver, x0: Tensor | None) -> Solution:
        return fixed_point(fixed, solver, x0, self.solver or _relative(solver), self.on_adjoint)


@dataclass(frozen=True)
class OneStep:
    """The gradient of one application of T at the fixed point: cheap, with a relative error of order c (Bolte et al. 2023)."""

    def attach(self, fixed: FixedPointMap, solver: Solver, x0: Tensor | None) -> Solution:
        solution = run(solver, fixed.detached(), x0)
        return dataclasses.replace(solution, value=fixed(solution.value.to(fixed.dtype)))


@dataclass(frozen=True)
class Unrolled:
    """The gradient through the Picard steps; memory grows with every step.

    Args:
        steps: number of steps; None: as many as a Picard solve to the tolerance takes.
    """

    steps: int | None = None

    def attach(self, fixed: FixedPointMap, solver: Solver, x0: Tensor | None) -> Solution:
        shared = {name: getattr(solver, name) for name in ("tol", "rtol", "max_iterations", "throw", "certify")}
        picard = Picard(**shared) if self.steps is None else Picard(**{**shared, "max_iterations": self.steps, "throw": False})
        solution = run(picard, fixed.detached(), x0)
        x = torch.zeros_like(fixed.at_zero()) if x0 is None else x0
        for _ in range(solution.iterations + 1 if self.steps is None else self.steps):
            x = fixed(x)
        return dataclasses.replace(solution, value=x)


def relative(solver: Solver) -> Solver:
    """The solver of an adjoint: gradients have no scale of their own, so the tolerance is relative to their size.

    Only numbers that float32 cannot hold are too small to matter: a loss near zero sends such gradients back.
    """
    smallest = torch.finfo(torch.float32).tiny
    return dataclasses.replace(solver, tol=smallest, rtol=max(solver.tolerances(torch.float64)), refine=False)


_known = lru_cache(maxsize=256)(relative)


def _relative(solver: Solver) -> Solver:
    """Made once for every solver; a compiler, which makes it once anyway, would warn of the cache."""
    return relative(solver) if torch.compiler.is_compiling() else _known(solver)


@dataclass(frozen=True)
class _Problem:
    """Everything about a fixed point but its tensors."""

    graph: Graph
    kind: str
    settings: str
    norm: str
    solver: Solver
    adjoint: Solver
    on_adjoint: Callable[[Solution], None] | None = None

    def map(self, parameters: Sequence[Tensor], contraction: Tensor) -> FixedPointMap:
        return FixedPointMap.kinds[self.kind].restore(self.graph, list(parameters), contraction, self.norm, self.settings)

    def texts(self) -> tuple[str, ...]:
        return self.graph.flow, self.kind, self.settings, self.norm, self.solver.encoded(), self.adjoint.encoded()

    def run(self, x0: Tensor | None, contraction: Tensor, parameters: Sequence[Tensor]) -> tuple[Tensor, ...]:
        with torch.no_grad(), _without_autocast(contraction.device.type):
            return run(self.solver, self.map(parameters, contraction), x0).tensors()

    def gradients(self, value: Tensor, contraction: Tensor, parameters: Sequence[Tensor], grad: Tensor) -> tuple[Tensor, ...]:
        """The adjoint solve, and from it the gradient of every parameter."""
        fixed = self.map(parameters, contraction)
        x = value.to(fixed.dtype)
        adjoint = fixed_point(fixed.transpose(grad.to(fixed.dtype), at=x), self.adjoint, None, self.adjoint)
        if self.on_adjoint is not None:
            self.on_adjoint(adjoint)
        return fixed.pullback(x, adjoint.value)


def _without_autocast(device: str) -> AbstractContextManager[object]:
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def fixed_point(
    fixed: FixedPointMap,
    solver: Solver,
    x0: Tensor | None,
    adjoint: Solver,
    on_adjoint: Callable[[Solution], None] | None = None,
) -> Solution:
    """The differentiable primitive: the solution of a map, with implicit derivatives in its parameters."""
    kind = (type(fixed).__name__, fixed.settings(), fixed.norm)
    problem = _Problem(fixed.graph, *kind, solver, adjoint, on_adjoint)
    contraction, parameters = fixed.contraction, fixed.parameters()
    if traced(parameters[0]):
        call = (fixed.graph.tensors(), *problem.texts(), contraction, list(parameters), x0)
        return Solution(*torch.ops.convergent.fixed_point(*call))
    inputs: tuple[Any, ...] = (problem, x0, contraction, *parameters)
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return Solution(*_FixedPoint.apply(*inputs))
    if not torch.is_grad_enabled():  # nobody will ask for a derivative, as within most backward passes
        return Solution(*_FixedPoint.forward(*inputs))
    certificate: list[Tensor] = []
    return Solution(_Value.apply(certificate, *inputs), *certificate)


class _FixedPoint(torch.autograd.Function):
    @staticmethod
    def forward(problem: _Problem, x0: Tensor | None, contraction: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        return problem.run(x0, contraction, parameters)

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
        return None, None, None, *ctx.problem.gradients(value, contraction, parameters, grad)

    @staticmethod
    def jvp(ctx: Any, _: None, __: None, ___: None, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        value, contraction, *parameters = ctx.saved_tensors
        problem = ctx.problem
        fixed = problem.map(parameters, contraction)
        x = value.to(fixed.dtype)
        moving = fixed.linearize(x).with_bias(fixed.pushforward(x, tangents))
        tangent = fixed_point(moving, problem.adjoint, None, problem.adjoint).value
        return (tangent.to(value.dtype), *(None,) * 5)


class _Value(torch.autograd.Function):
    """The same in reverse mode alone, and of the value alone: every output that torch has to know of costs it some time."""

    @staticmethod
    def forward(
        ctx: Any, certificate: list[Tensor], problem: _Problem, x0: Tensor | None, contraction: Tensor, *parameters: Tensor
    ) -> Tensor:
        value, *others = problem.run(x0, contraction, parameters)
        certificate.extend(others)
        ctx.problem = problem
        ctx.save_for_backward(value, contraction, *parameters)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        value, contraction, *parameters = ctx.saved_tensors
        return None, None, None, None, *ctx.problem.gradients(value, contraction, parameters, grads[0])


# The same as an operator of torch, for torch.compile.


@torch.library.custom_op("convergent::fixed_point", mutates_args=())
def _fixed_point_op(
    graph: list[Tensor],
    flow: str,
    kind: str,
    settings: str,
    norm: str,
    solver: str,
    adjoint: str,
    contraction: Tensor,
    parameters: list[Tensor],
    x0: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    problem = _restored(graph, flow, kind, settings, norm, solver, adjoint)
    return problem.run(x0, contraction, parameters)  # type: ignore[return-value]


def _restored(graph: list[Tensor], flow: str, kind: str, settings: str, norm: str, solver: str, adjoint: str) -> _Problem:
    return _Problem(Graph.from_tensors(graph, flow), kind, settings, norm, decoded(solver), decoded(adjoint))


@_fixed_point_op.register_fake
def _(
    graph: list[Tensor],
    flow: str,
    kind: str,
    settings: str,
    norm: str,
    solver: str,
    adjoint: str,
    contraction: Tensor,
    parameters: list[Tensor],
    x0: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    dtype = torch.float64 if decoded(solver).refine else parameters[0].dtype
    nodes, (graphs, heads) = graph[3].shape[0] - 1, contraction.shape
    return (
        contraction.new_empty(nodes, heads, dtype=dtype),
        torch.empty_like(contraction),
        torch.empty_like(contraction),
        torch.empty_like(contraction, dtype=torch.int8),
        contraction.new_empty(graphs, dtype=torch.long),
        contraction.new_empty(len(Solver.methods), dtype=torch.bool),
    )


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    graph, *ctx.texts, contraction, parameters, _ = inputs
    ctx.parameters = len(parameters)
    ctx.save_for_backward(*graph, output[0], contraction, *parameters)


def _backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
    saved, count = ctx.saved_tensors, ctx.parameters
    graph, value, contraction, parameters = saved[: -count - 2], saved[-count - 2], saved[-count - 1], saved[-count:]
    problem = _restored(list(graph), *ctx.texts)
    gradients = problem.gradients(value, contraction, parameters, grad)
    return [None] * len(graph), *(None,) * 6, None, list(gradients), None


_fixed_point_op.register_autograd(_backward, setup_context=_remember)
