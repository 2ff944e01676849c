"""The two bilinear operations of a sparse operator, differentiable to any order in both modes.

    propagate(graph, w, x)     y_i = sum over the edges e: i -> j of  w_e x_j
    edge_product(graph, u, x)  z_e = u_i x_j   for the edge e: i -> j

Each is the other's derivative: <u, propagate(w, x)> = <edge_product(u, x), w>, so the pair is closed under differentiation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from convergent.graph import Graph
from convergent.kernels import backend


def propagate(graph: Graph, weight: Tensor, x: Tensor) -> Tensor:
    """y = W x for all heads: weight [E, H], x [N, H] -> [N, H]."""
    function = _Propagate if torch.compiler.is_compiling() else _PropagateForward
    return function.apply(graph, weight, x)


def edge_product(graph: Graph, u: Tensor, x: Tensor) -> Tensor:
    """u at the row of every edge times x at its column: u, x [N, H] -> [E, H]."""
    function = _EdgeProduct if torch.compiler.is_compiling() else _EdgeProductForward
    return function.apply(graph, u, x)


def _propagate(graph: Graph, weight: Tensor, x: Tensor) -> Tensor:
    if torch.compiler.is_compiling():
        return torch.ops.convergent.propagate(graph.tensors(), graph.flow, weight, x)
    return backend(x).propagate(graph.rows, weight, x)


def _edge_product(graph: Graph, u: Tensor, x: Tensor) -> Tensor:
    if torch.compiler.is_compiling():
        return torch.ops.convergent.edge_product(graph.row, graph.column, u, x)
    return backend(x).edge_product(graph.row, graph.column, u, x)


@torch.library.custom_op("convergent::propagate", mutates_args=())
def _propagate_op(graph: list[Tensor], flow: str, weight: Tensor, x: Tensor) -> Tensor:
    return backend(x).propagate(Graph.from_tensors(graph, flow).rows, weight, x)


@_propagate_op.register_fake
def _(graph: list[Tensor], flow: str, weight: Tensor, x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("convergent::edge_product", mutates_args=())
def _edge_product_op(row: Tensor, column: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return backend(x).edge_product(row, column, u, x)


@_edge_product_op.register_fake
def _(row: Tensor, column: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return x.new_empty(row.shape[0], x.shape[1])


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(graph: Graph, weight: Tensor, x: Tensor) -> Tensor:
        return _propagate(graph, weight, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.graph, weight, x = inputs
        ctx.save_for_backward(weight, x)
        ctx.save_for_forward(weight, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, x = ctx.saved_tensors
        to_weight = edge_product(ctx.graph, grad, x) if ctx.needs_input_grad[1] else None
        to_x = propagate(ctx.graph.transpose(), weight, grad) if ctx.needs_input_grad[2] else None
        return None, to_weight, to_x


class _PropagateForward(_Propagate):
    """With forward mode, which torch.compile does not trace."""

    @staticmethod
    def jvp(ctx: Any, _: None, weight_tangent: Tensor | None, x_tangent: Tensor | None) -> Tensor:
        weight, x = ctx.saved_tensors
        return _sum(
            None if weight_tangent is None else propagate(ctx.graph, weight_tangent, x),
            None if x_tangent is None else propagate(ctx.graph, weight, x_tangent),
        )


class _EdgeProduct(torch.autograd.Function):
    @staticmethod
    def forward(graph: Graph, u: Tensor, x: Tensor) -> Tensor:
        return _edge_product(graph, u, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.graph, u, x = inputs
        ctx.save_for_backward(u, x)
        ctx.save_for_forward(u, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        u, x = ctx.saved_tensors
        to_u = propagate(ctx.graph, grad, x) if ctx.needs_input_grad[1] else None
        to_x = propagate(ctx.graph.transpose(), grad, u) if ctx.needs_input_grad[2] else None
        return None, to_u, to_x


class _EdgeProductForward(_EdgeProduct):
    """With forward mode, which torch.compile does not trace."""

    @staticmethod
    def jvp(ctx: Any, _: None, u_tangent: Tensor | None, x_tangent: Tensor | None) -> Tensor:
        u, x = ctx.saved_tensors
        return _sum(
            None if u_tangent is None else edge_product(ctx.graph, u_tangent, x),
            None if x_tangent is None else edge_product(ctx.graph, u, x_tangent),
        )


def _sum(*terms: Tensor | None) -> Tensor:
    present = [term for term in terms if term is not None]
    return torch.stack(present).sum(0) if len(present) > 1 else present[0]
