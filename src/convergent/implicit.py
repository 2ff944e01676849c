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
from convergent.kernels.batching import apply_to_gradients, batched_gradients, fold, saved, unfold
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
        solution = fixed_point(fixed.detached(), solver, x0, solver)
        return _carried(solution, fixed(solution.value.to(fixed.dtype)))


@dataclass(frozen=True)
class Unrolled:
    """The gradient through the Picard steps; memory grows with every step.

    Args:
        steps: number of steps; None: as many as a Picard solve to the tolerance takes.
    """

    steps: int | None = None

    def attach(self, fixed: FixedPointMap, solver: Solver, x0: Tensor | None) -> Solution:
        picard = Picard(**{name: getattr(solver, name) for name in ("tol", "rtol", "max_iterations", "throw", "certify", "refine")})
        x = torch.zeros_like(fixed.at_zero()) if x0 is None else x0
        if self.steps is None:
            solution = fixed_point(fixed.detached(), picard, x0, picard)
            for _ in range(solution.iterations + 1):
                x = fixed(x)
            return _carried(solution, x)
        for _ in range(self.steps):
            x = fixed(x)
        reported = dataclasses.replace(picard, max_iterations=None, throw=False)
        solution = fixed_point(fixed.detached(), reported, x.detach(), reported, still=True)
        steps = torch.full_like(solution.steps, self.steps)
        return dataclasses.replace(solution, value=x.to(solution.value.dtype), steps=steps)


def _carried(solution: Solution, image: Tensor) -> Solution:
    """A solution whose value, which is certified, has the derivatives of ``image``."""
    return dataclasses.replace(solution, value=solution.value.detach() + (image - image.detach()))


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


@dataclass(eq=False, slots=True)
class _Problem:
    """Everything about a fixed point but its tensors."""

    graph: Graph
    kind: str
    settings: str
    norm: str
    solver: Solver
    adjoint: Solver
    on_adjoint: Callable[[Solution], None] | None = None
    still: bool = False  # take no step, certify the start

    def map(self, parameters: Sequence[Tensor], contraction: Tensor) -> FixedPointMap:
        return FixedPointMap.kinds[self.kind]._assemble(self.graph, list(parameters), contraction, self.norm, self.settings)

    def texts(self) -> tuple[str, ...]:
        return self.graph.flow, self.kind, self.settings, self.norm, self.solver.encoded(), self.adjoint.encoded()

    def run(self, fixed: FixedPointMap, x0: Tensor | None) -> Solution:
        with torch.no_grad(), _without_autocast(fixed.device.type):
            return run(self.solver, fixed, x0, still=self.still)

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
    still: bool = False,
) -> Solution:
    """The differentiable primitive: the solution of a map, with implicit derivatives in its parameters."""
    kind = (type(fixed).__name__, fixed.settings(), fixed.norm)
    problem = _Problem(fixed.graph, *kind, solver, adjoint, on_adjoint, still)
    contraction, parameters = fixed.contraction, fixed.parameters()
    if traced(parameters[0]):
        call = (fixed.graph.tensors(), *problem.texts(), still, contraction, list(parameters), x0)
        return Solution(*torch.ops.convergent.fixed_point(*call))
    if batched_gradients((x0, *parameters)):
        return Solution(*apply_to_gradients(_FixedPoint, (problem, x0, contraction, *parameters)))
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return Solution(*_FixedPoint.apply(problem, x0, contraction, *parameters))
    wanted = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in parameters)
    if not wanted:  # nobody will ask for a derivative, as within most backward passes
        return problem.run(fixed, x0)
    certificate: list[Tensor] = []
    return Solution(_Value.apply(certificate, problem, fixed, x0, contraction, *parameters), *certificate)


OUT_DIMS = (1, 1, 1, 1, None, None)  # where the tensors of a solution have their batch


def _unfolded(tensors: Sequence[Tensor], size: int) -> tuple[Tensor, ...]:
    return *(unfold(part, size) for part in tensors[:4]), *tensors[4:]


class _FixedPoint(torch.autograd.Function):
    @staticmethod
    def forward(problem: _Problem, x0: Tensor | None, contraction: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        return problem.run(problem.map(parameters, contraction), x0).tensors()

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], problem: _Problem, x0: Tensor | None, contraction: Tensor, *parameters: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
        """A batch is another axis of heads. Steps and methods are those of all of them together."""
        size = info.batch_size
        start = None if x0 is None else fold(x0, in_dims[1], size)
        factor, *folded = (fold(*pair, size) for pair in zip((contraction, *parameters), in_dims[2:], strict=True))
        fixed = problem.map(folded, factor)
        solution = fixed_point(fixed, problem.solver, start, problem.adjoint, problem.on_adjoint, problem.still)
        return _unfolded(solution.tensors(), size), OUT_DIMS

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.problem, _, contraction, *parameters = inputs
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(output[0], contraction, *parameters)
        ctx.save_for_forward(output[0], contraction, *parameters)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        value, contraction, *parameters = saved(ctx)
        if grad is None:
            return (None,) * (3 + len(parameters))
        return None, None, None, *ctx.problem.gradients(value, contraction, parameters, grad)

    @staticmethod
    def jvp(ctx: Any, _: None, __: None, ___: None, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        value, contraction, *parameters = saved(ctx)
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
        ctx: Any,
        certificate: list[Tensor],
        problem: _Problem,
        fixed: FixedPointMap,
        x0: Tensor | None,
        contraction: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        value, *others = problem.run(fixed, x0).tensors()
        certificate.extend(others)
        ctx.problem = problem
        ctx.save_for_backward(value, contraction, *parameters)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        value, contraction, *parameters = saved(ctx)
        return None, None, None, None, None, *ctx.problem.gradients(value, contraction, parameters, grads[0])


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
    still: bool,
    contraction: Tensor,
    parameters: list[Tensor],
    x0: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    problem = _restored(graph, flow, kind, settings, norm, solver, adjoint, still)
    return problem.run(problem.map(parameters, contraction), x0).tensors()  # type: ignore[return-value]


def _restored(
    graph: list[Tensor], flow: str, kind: str, settings: str, norm: str, solver: str, adjoint: str, still: bool
) -> _Problem:
    structure = Graph.from_tensors(graph, flow)
    return _Problem(structure, kind, settings, norm, decoded(solver), decoded(adjoint), None, still)


@_fixed_point_op.register_fake
def _(
    graph: list[Tensor],
    flow: str,
    kind: str,
    settings: str,
    norm: str,
    solver: str,
    adjoint: str,
    still: bool,
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
    return [None] * len(graph), *(None,) * 7, None, list(gradients), None


_fixed_point_op.register_autograd(_backward, setup_context=_remember)


@_fixed_point_op.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], *call: Any) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
    *settings, contraction, parameters, x0 = call
    *_, of_contraction, of_parameters, of_start = in_dims
    size = info.batch_size
    folded = [fold(value, dim, size) for value, dim in zip(parameters, of_parameters, strict=True)]
    start = None if x0 is None else fold(x0, of_start, size)
    found = torch.ops.convergent.fixed_point(*settings, fold(contraction, of_contraction, size), folded, start)
    return _unfolded(found, size), OUT_DIMS
