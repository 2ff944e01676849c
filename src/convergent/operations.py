"""The operations of a sparse operator, differentiable to any order in both modes.

    propagate(graph, w, x)     y_i = sum over the edges e: i -> j of  w_e x_j
    edge_product(graph, u, x)  z_e = u_i x_j         for the edge e: i -> j
    sum_edges(graph, v)        y_i = sum over the edges e: i -> j of  v_e
    at_rows(graph, u)          z_e = u_i
    edge_sum(graph, v, u, x)   z_e = v_e + u_i + x_j

The first two are each other's derivative, <u, propagate(w, x)> = <edge_product(u, x), w>, and so are the next two.

Shapes, dtypes and devices are tested in every call. Where dtypes differ the result has the wider one, as in torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from convergent.graph import Graph, traced
from convergent.kernels import backend, reference
from convergent.kernels.arguments import expect_matrix
from convergent.kernels.batching import apply_to_gradients, batched_gradients, fold, saved, unfold

Gradients = tuple[Tensor | None, Tensor | None]
Unary = Callable[[Graph, Tensor], Tensor]
Operation = Callable[[Graph, Tensor, Tensor], Tensor]


def propagate(graph: Graph, weight: Tensor, x: Tensor) -> Tensor:
    """y = W x for all heads: weight [E, H], x [N, H] -> [N, H]."""
    _check_product(graph, weight, x)
    return _propagate(graph, weight, x)


def edge_product(graph: Graph, u: Tensor, x: Tensor) -> Tensor:
    """u at the row of every edge times x at its column: u, x [N, H] -> [E, H]."""
    _check_ends(graph, u, x)
    return _edge_product(graph, u, x)


def edge_sum(graph: Graph, values: Tensor, u: Tensor, x: Tensor) -> Tensor:
    """A value per edge [E, D] plus u at its row plus x at its column, [N, D] each -> [E, D]."""
    _check_ends(graph, u, x)
    expect_matrix("values", values, graph.num_edges, x.shape[1], x.device)
    if traced(x):
        return reference.edge_sum(graph.row, graph.column, values, u, x)
    return _apply_edge_sum(graph, values, u, x)


def sum_edges(graph: Graph, values: Tensor) -> Tensor:
    """The sum of a value per edge [E, D] over the edges of every node, [N, D]."""
    expect_matrix("values", values, graph.num_edges, "columns", graph.row.device)
    return _sum_edges(graph, values)


def at_rows(graph: Graph, u: Tensor) -> Tensor:
    """u [N, D] at the row of every edge, [E, D]. Torch would add up its gradient in any order."""
    expect_matrix("u", u, graph.num_nodes, "columns", graph.row.device)
    return _at_rows(graph, u)


def _check_product(graph: Graph, weight: Tensor, x: Tensor) -> None:
    expect_matrix("weight", weight, graph.num_edges, "heads", graph.row.device)
    expect_matrix("x", x, graph.num_nodes, weight.shape[1], weight.device)


def _check_ends(graph: Graph, u: Tensor, x: Tensor) -> None:
    expect_matrix("x", x, graph.num_nodes, "columns", graph.row.device)
    expect_matrix("u", u, graph.num_nodes, x.shape[1], x.device)


# The same without the tests, for derivatives, whose tensors have the shapes of those that were tested.


def _propagate(graph: Graph, weight: Tensor, x: Tensor) -> Tensor:
    if x.dtype != weight.dtype:  # kernels sum in the dtype of x
        x = x.to(torch.promote_types(x.dtype, weight.dtype))
    if traced(x):
        return torch.ops.convergent.propagate(graph.tensors(), graph.flow, weight, x)
    return _apply_propagate(graph, weight, x)


def _edge_product(graph: Graph, u: Tensor, x: Tensor) -> Tensor:
    if traced(x):
        return torch.ops.convergent.edge_product(graph.tensors(), graph.flow, u, x)
    return _apply_edge_product(graph, u, x)


def _sum_edges(graph: Graph, values: Tensor) -> Tensor:
    if traced(values):
        return _propagate(graph, values, values.new_ones(graph.num_nodes, values.shape[1]))
    return _apply_sum_edges(graph, values)


def _at_rows(graph: Graph, u: Tensor) -> Tensor:
    if traced(u):
        return u.index_select(0, graph.row)
    return _apply_at_rows(graph, u)


def _batched(operate: Callable[..., Tensor]) -> Callable[..., Any]:
    """The rule of torch.vmap for an operation on tensors [rows, heads]."""

    def vmap(info: Any, in_dims: tuple[Any, ...], graph: Graph, *tensors: Tensor) -> tuple[Tensor, int]:
        size = info.batch_size
        folded = (fold(value, dim, size) for value, dim in zip(tensors, in_dims[1:], strict=True))
        return unfold(operate(graph, *folded), size), 1

    return staticmethod(vmap)


def applying(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """``function.apply``, without the inspection of signatures that torch does for torch.func in every call."""

    class Plain(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            output = function.forward(*inputs)
            function.setup_context(ctx, inputs, output)
            return output

        backward = staticmethod(function.backward)
        jvp = staticmethod(function.jvp)

    def apply(*inputs: Any) -> Any:
        if torch._C._are_functorch_transforms_active():
            return function.apply(*inputs)
        if batched_gradients(inputs):
            return apply_to_gradients(function, inputs)
        if not torch.is_grad_enabled() and forward_ad._current_level < 0:
            return function.forward(*inputs)  # nobody will ask for a derivative, as within most backward passes
        return Plain.apply(*inputs)

    return apply


def _propagate_gradients(graph: Graph, needs: tuple[bool, ...], weight: Tensor, x: Tensor, grad: Tensor) -> Gradients:
    to_weight = _edge_product(graph, grad, x) if needs[0] else None
    return to_weight, _propagate(graph.transpose(), weight, grad) if needs[1] else None


def _edge_product_gradients(graph: Graph, needs: tuple[bool, ...], u: Tensor, x: Tensor, grad: Tensor) -> Gradients:
    to_u = _propagate(graph, grad, x) if needs[0] else None
    return to_u, _propagate(graph.transpose(), grad, u) if needs[1] else None


class _Propagate(torch.autograd.Function):
    vmap = _batched(_propagate)

    @staticmethod
    def forward(graph: Graph, weight: Tensor, x: Tensor) -> Tensor:
        return backend(x).propagate(graph.rows, weight, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _remember(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, x = saved(ctx)
        return None, *_propagate_gradients(ctx.graph, ctx.needs_input_grad[1:], weight, x, grad)

    @staticmethod
    def jvp(ctx: Any, _: None, weight_tangent: Tensor | None, x_tangent: Tensor | None) -> Tensor:
        return _product_rule(_propagate, ctx, weight_tangent, x_tangent)


class _EdgeProduct(torch.autograd.Function):
    vmap = _batched(_edge_product)

    @staticmethod
    def forward(graph: Graph, u: Tensor, x: Tensor) -> Tensor:
        return backend(x).edge_product(graph.row, graph.column, u, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _remember(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        u, x = saved(ctx)
        return None, *_edge_product_gradients(ctx.graph, ctx.needs_input_grad[1:], u, x, grad)

    @staticmethod
    def jvp(ctx: Any, _: None, u_tangent: Tensor | None, x_tangent: Tensor | None) -> Tensor:
        return _product_rule(_edge_product, ctx, u_tangent, x_tangent)


def _linear(operate: Unary, itself: Unary, adjoint: Unary) -> type[torch.autograd.Function]:
    """An operation that is linear in its one tensor."""

    class Linear(torch.autograd.Function):
        forward = staticmethod(operate)
        vmap = _batched(itself)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            ctx.graph = inputs[0]

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
            return None, adjoint(ctx.graph, grad)

        @staticmethod
        def jvp(ctx: Any, _: None, tangent: Tensor) -> Tensor:
            return itself(ctx.graph, tangent)

    return Linear


class _EdgeSum(torch.autograd.Function):
    """Its derivatives sum over the edges of a node, of either end."""

    vmap = _batched(edge_sum)

    @staticmethod
    def forward(graph: Graph, values: Tensor, u: Tensor, x: Tensor) -> Tensor:
        return backend(x).edge_sum(graph.row, graph.column, values, u, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.graph = inputs[0]
        ctx.dtypes = [value.dtype for value in inputs[1:]]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        graph, (_, _, to_u, to_x) = ctx.graph, ctx.needs_input_grad
        found = (grad, _sum_edges(graph, grad) if to_u else None, _sum_edges(graph.transpose(), grad) if to_x else None)
        return None, *(None if part is None else part.to(dtype) for part, dtype in zip(found, ctx.dtypes, strict=True))

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Tensor | None) -> Tensor:
        values, u, x = tangents
        at_ends = (None if part is None else _at_rows(g, part) for part, g in ((u, ctx.graph), (x, ctx.graph.transpose())))
        return reduce(torch.add, (part for part in (values, *at_ends) if part is not None))


_apply_propagate, _apply_edge_product, _apply_edge_sum = applying(_Propagate), applying(_EdgeProduct), applying(_EdgeSum)
_apply_sum_edges = applying(_linear(lambda graph, values: backend(values).sum_edges(graph.rows, values), _sum_edges, _at_rows))
_apply_at_rows = applying(_linear(lambda graph, u: u.index_select(0, graph.row), _at_rows, _sum_edges))


def _remember(ctx: Any, graph: Graph, first: Tensor, second: Tensor) -> None:
    ctx.graph = graph
    ctx.save_for_backward(first, second)
    ctx.save_for_forward(first, second)


def _product_rule(operation: Operation, ctx: Any, first: Tensor | None, second: Tensor | None) -> Tensor:
    left, right = saved(ctx)
    terms = [] if first is None else [operation(ctx.graph, first, right)]
    terms += [] if second is None else [operation(ctx.graph, left, second)]
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


# The same two operations as operators of torch, for torch.compile, which traces no native code and no forward mode.


@torch.library.custom_op("convergent::propagate", mutates_args=())
def _propagate_op(graph: list[Tensor], flow: str, weight: Tensor, x: Tensor) -> Tensor:
    structure = Graph.from_tensors(graph, flow)
    _check_product(structure, weight, x)
    return backend(x).propagate(structure.rows, weight, x)


@torch.library.custom_op("convergent::edge_product", mutates_args=())
def _edge_product_op(graph: list[Tensor], flow: str, u: Tensor, x: Tensor) -> Tensor:
    structure = Graph.from_tensors(graph, flow)
    _check_ends(structure, u, x)
    return backend(x).edge_product(structure.row, structure.column, u, x)


@_propagate_op.register_fake
def _(graph: list[Tensor], flow: str, weight: Tensor, x: Tensor) -> Tensor:
    return x.new_empty(graph[3].shape[0] - 1, x.shape[1])


@_edge_product_op.register_fake
def _(graph: list[Tensor], flow: str, u: Tensor, x: Tensor) -> Tensor:
    return x.new_empty(graph[1].shape[0], x.shape[1], dtype=torch.promote_types(u.dtype, x.dtype))


def _remember_op(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    graph, ctx.flow, first, second = inputs
    ctx.save_for_backward(*graph, first, second)


def _operator_backward(gradients: Callable[..., Gradients]) -> Callable[..., Any]:
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        *graph, first, second = ctx.saved_tensors
        structure = Graph.from_tensors(graph, ctx.flow)
        return [None] * len(graph), None, *gradients(structure, (True, True), first, second, grad)

    return backward


_propagate_op.register_autograd(_operator_backward(_propagate_gradients), setup_context=_remember_op)
_edge_product_op.register_autograd(_operator_backward(_edge_product_gradients), setup_context=_remember_op)


def _batched_op(operate: Callable[..., Tensor]) -> Callable[..., Any]:
    def vmap(
        info: Any, in_dims: tuple[Any, ...], graph: list[Tensor], flow: str, first: Tensor, second: Tensor
    ) -> tuple[Tensor, int]:
        size = info.batch_size
        folded = (fold(value, dim, size) for value, dim in zip((first, second), in_dims[2:], strict=True))
        return unfold(operate(graph, flow, *folded), size), 1

    return vmap


_propagate_op.register_vmap(_batched_op(torch.ops.convergent.propagate))
_edge_product_op.register_vmap(_batched_op(torch.ops.convergent.edge_product))
