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

LOOK = 8  # steps between two looks at a GPU, which would wait for every one of them


class Limits(NamedTuple):
    tol: float  # on the length of a step, and relative to its size on that of the adjoint
    steps: int  # at most


def steady_state(step: Callable[[Tensor], Tensor], start: Tensor, limits: Limits) -> tuple[Tensor, int]:
    """x <- T(x), without gradient, until no entry moves by more than the tolerance: x and the number of steps."""
    x = start
    with torch.no_grad():
        for count in range(1, limits.steps + 1):
            moved, before = step(x), x
            x = moved
            if _looks(count, x) and not (x.numel() and float((moved - before).abs().max()) > limits.tol):
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


def describe(
    graph: Graph, x: Tensor, image: Tensor, factor: float, weight: Tensor, steps: int, limits: Limits, euclidean: bool = False
) -> Solution:
    """A ``Solution`` with one lane per graph: contraction ``factor`` in the max norm weighted by ``weight`` > 0 [N, 1].

    The size of a node is that of its largest number or, ``euclidean``, its Euclidean norm, which is no smaller.
    """
    with torch.no_grad():
        move = (image - x).double()
        size = backend(move).segment_reduce
        residual = size(move.abs().amax(1, keepdim=True), graph.segments, "max")
        nodes = move.norm(dim=1, keepdim=True) if euclidean else move.abs().amax(1, keepdim=True)
        scaled = size(nodes / weight, graph.segments, "max")
        largest = size(weight.double(), graph.segments, "max")
        # T(x) is closer than x: c / (1 - c) times the last step
        bound = scaled * largest * factor / (1 - factor) if factor < 1 else torch.full_like(residual, torch.inf)
        met = residual <= limits.tol
        status = torch.where(met, Status.CONVERGED, Status.BUDGET).to(torch.int8)
        count = torch.full((graph.num_graphs,), steps, device=x.device)
    return Solution(image, residual, bound, status, count, used_methods(("Picard",), x.device))
