"""Differentiable fixed-point layers: (weight [E, H], bias [N, H]) -> x [N, H] with x = W x + b."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers import torchdeq_solver
from benchmarks.workloads import Workload
from convergent import Auto, LinearMap, solve
from convergent.experiments.runtime import iterate as iterate_dense

Layer = Callable[[Tensor, Tensor], Tensor]


def convergent_layer(work: Workload, tol: float) -> Layer:
    """Ours: the map is built and checked in every call, the graph once."""
    graph, solver = work.graph, Auto(tol=tol)
    return lambda weight, bias: solve(LinearMap(graph, weight, bias), solver).value


def dense_layer(work: Workload, tol: float = 1e-6, cap: int = 50) -> Layer:
    """The paper's appendix B: one dense matrix per head over the whole batch, a Frobenius-norm stop, at most 50 steps.

    The gradient is its implicit one: a single tracked application at the fixed point, whose incoming gradient a hook
    replaces by the fixed point of the transposed Jacobian, iterated in the same way.
    """
    size, heads = work.num_nodes, torch.arange(work.heads, device=work.row.device)[:, None]

    def layer(weight: Tensor, bias: Tensor) -> Tensor:
        empty = weight.new_zeros(work.heads, size, size)
        matrix = empty.index_put((heads, work.row, work.column), weight.t(), accumulate=True)  # [H, N, N]
        right = bias.t().unsqueeze(-1)  # [H, N, 1]
        state = torch.bmm(matrix, iterate_dense(matrix, right, tol, cap)) + right
        if state.requires_grad:
            slope = torch.ones_like(state.detach())  # of the activation, here the identity
            jacobian = (slope * matrix.detach()).transpose(1, 2)
            state.register_hook(lambda grad: iterate_dense(jacobian, grad, tol, cap))
        return state.squeeze(-1).t()

    return layer


def index_add_layer(work: Workload, tol: float) -> Layer:
    """Gather and ``index_add`` in torch, with an implicit backward and our stopping rule over the whole batch."""
    row, column, gamma = work.row, work.column, work.gamma

    def iterate(weight: Tensor, right: Tensor, to: Tensor, source: Tensor, size: Callable[[Tensor], Tensor], goal: float) -> Tensor:
        state, steps = right, steps_needed(gamma, goal / float(size(right)))  # rounding may keep the goal out of reach
        for _ in range(steps):
            image = right.index_add(0, to, weight * state.index_select(0, source))
            step = float(size(image - state))
            state = image
            if gamma * step <= goal:
                break
        return state

    class FixedPoint(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, weight: Tensor, bias: Tensor) -> Tensor:
            x = iterate(weight, bias, row, column, lambda values: values.abs().max(), tol * (1 - gamma))
            ctx.save_for_backward(weight, x)
            return x

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
            weight, x = ctx.saved_tensors
            scale = float(grads[0].abs().sum(0).max())
            goal = tol * (1 - gamma) * scale / (1 + gamma)
            adjoint = iterate(weight, grads[0], column, row, lambda values: values.abs().sum(0).max(), goal)
            return adjoint.index_select(0, row) * x.index_select(0, column), adjoint

    return FixedPoint.apply


@dataclass(frozen=True)
class DEQ:
    """Settings of TorchDEQ, the same solver both ways; tolerances are 2-norms of the last step."""

    solver: str
    tol: float
    backward_tol: float
    ridge: float | None = None  # of Anderson; None: its own
    patience: int = 1  # times the steps that plain iteration needs to the end of float32


def torchdeq_layer(work: Workload, settings: DEQ) -> Layer:
    """TorchDEQ with its implicit gradient."""
    import torchdeq

    steps = settings.patience * steps_needed(work.gamma, 1e-7 * (1 - work.gamma))
    solver = torchdeq_solver(settings.solver, settings.ridge)
    forward = {"f_solver": solver, "f_max_iter": steps, "f_tol": settings.tol, "f_stop_mode": "abs"}
    backward = {"b_solver": solver, "b_max_iter": steps, "b_tol": settings.backward_tol, "b_stop_mode": "abs"}
    deq = torchdeq.get_deq(**forward, **backward, ift=True)
    row, column = work.row, work.column

    def layer(weight: Tensor, bias: Tensor) -> Tensor:
        def operator(z: Tensor) -> Tensor:  # [1, N, H]: one item, the cheapest way through TorchDEQ's bookkeeping
            return bias.index_add(0, row, weight * z[0].index_select(0, column)).unsqueeze(0)

        return deq(operator, torch.zeros_like(bias).unsqueeze(0))[0][-1][0]

    return layer


def linalg_layer(work: Workload) -> Layer:
    """``torch.linalg.solve`` of all graphs and heads at once, padded to the largest; also the float64 reference."""
    segments = work.graph.segments.long()
    batch = work.graph.batch
    slot = torch.arange(work.num_nodes, device=batch.device) - segments[batch]  # place of a node in its graph
    graphs, largest = work.graph.num_graphs, work.graph.largest
    place = (batch[work.row], slot[work.row], slot[work.column])

    def layer(weight: Tensor, bias: Tensor) -> Tensor:
        matrix = weight.new_zeros(graphs, largest, largest, work.heads).index_put(place, weight, accumulate=True)
        right = bias.new_zeros(graphs, largest, work.heads).index_put((batch, slot), bias)
        identity = torch.eye(largest, dtype=weight.dtype, device=weight.device)
        x = torch.linalg.solve(identity - matrix.permute(0, 3, 1, 2), right.transpose(1, 2).unsqueeze(-1))
        return x.squeeze(-1).transpose(1, 2)[batch, slot]

    return layer


def steps_needed(gamma: float, gain: float) -> int:
    """After so many steps a contraction by gamma has made any error smaller by the factor ``gain``."""
    return max(1, math.ceil(math.log(gain) / math.log(gamma)))
