"""Fixed points of maps whose channels are mixed, x = T(x) on [N, D], for the baselines; plain steps, and the implicit gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from convergent.graph import Graph
from convergent.kernels import backend
from convergent.solvers import Solution, Status
from convergent.solvers.solution import used_methods

ROUNDING = 2  # steps of so many units in the last place of x are not worth another one
LOOK = 8  # steps between two looks at a GPU, which would wait for every one of them


class Limits(NamedTuple):
    tol: float  # on the error bound, or on the length of a step where nothing bounds the error; relative on the adjoint's steps
    steps: int  # at most


class Contraction(NamedTuple):
    """A map that contracts by ``factor`` in the max norm weighted by ``weight`` > 0 [N, 1]; with 1 or more nothing is bounded.

    The size of a node is that of its largest number or, ``euclidean``, its Euclidean norm, which is no smaller.
    """

    graph: Graph
    factor: float
    weight: Tensor
    euclidean: bool = False

    def bound(self, move: Tensor) -> Tensor:
        """The error of every graph, [G, 1], after a step of ``move``: T(x) is closer than x, by c / (1 - c) times the step."""
        size = backend(move).segment_reduce
        move = move.double()
        if self.factor >= 1:
            return torch.full_like(size(move[:, :1], self.graph.segments, "max"), torch.inf)
        nodes = move.norm(dim=1, keepdim=True) if self.euclidean else move.abs().amax(1, keepdim=True)
        scaled = size(nodes / self.weight, self.graph.segments, "max")
        largest = size(self.weight.double(), self.graph.segments, "max")
        return scaled * largest * self.factor / (1 - self.factor)


def steady_state(
    step: Callable[[Tensor], Tensor], start: Tensor, limits: Limits, contraction: Contraction | None = None
) -> tuple[Tensor, int]:
    """x <- T(x), without gradient, until the error bound is within the tolerance: x and the number of steps.

    Where nothing bounds the error it ends when no entry moves by more than the tolerance, and always when steps are rounding only.
    """
    x = start
    bounded = contraction is not None and contraction.factor < 1
    with torch.no_grad():
        for count in range(1, limits.steps + 1):
            moved, before = step(x), x
            x = moved
            if not _looks(count, x):
                continue
            if not x.numel():
                return x, count
            move = moved - before
            length = move.abs().max()
            left = contraction.bound(move).max() if contraction is not None and bounded else length
            if not bool((left > limits.tol) & (length > ROUNDING * torch.finfo(x.dtype).eps * x.abs().max())):
                return x, count
    return x, limits.steps


def _looks(count: int, x: Tensor) -> bool:
    return not x.is_cuda or count % LOOK == 0


def implicit(step: Callable[[Tensor], Tensor], x: Tensor, limits: Limits) -> Tensor:
    """T(x) with the gradient of the fixed point: a hook turns the incoming gradient g into v = J^T v + g."""
    if not torch.is_grad_enabled():
        return step(x)
    point = x.detach().requires_grad_()
    image = step(point)
    if not image.requires_grad:
        return image
    slope = step(point)  # a graph of its own: the hook goes through it several times

    def adjoint(grad: Tensor | None) -> Tensor | None:
        if grad is None:
            return None
        size = float(grad.abs().sum()) or 1.0
        v = grad
        for count in range(1, limits.steps + 1):
            (back,) = torch.autograd.grad(slope, point, v, retain_graph=True)
            moved, before = grad + back, v
            v = moved
            if _looks(count, v) and float((moved - before).abs().sum()) <= limits.tol * size:
                break
        return v

    image.register_hook(adjoint)
    return image


def describe(x: Tensor, image: Tensor, steps: int, limits: Limits, contraction: Contraction) -> Solution:
    """A ``Solution`` with one lane per graph, converged where its error bound is within the tolerance."""
    graph = contraction.graph
    with torch.no_grad():
        move = (image - x).double()
        residual = backend(move).segment_reduce(move.abs().amax(1, keepdim=True), graph.segments, "max")
        bound = contraction.bound(move)
        ended = Status.BUDGET if steps >= limits.steps else Status.PRECISION
        status = torch.full_like(residual, ended, dtype=torch.int8)
        status.masked_fill_(bound <= limits.tol, Status.CONVERGED)
        if contraction.factor >= 1:
            status.masked_fill_(residual <= limits.tol, Status.STEADY)
        count = torch.full((graph.num_graphs,), steps, device=x.device)
    return Solution(image, residual, bound, status, count, used_methods(("Picard",), x.device))
