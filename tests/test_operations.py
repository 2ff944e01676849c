from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from convergent.kernels import using
from convergent.operations import at_rows, edge_product, edge_sum, propagate, sum_edges
from problems import DOUBLE, random_batch


@pytest.fixture(params=["reference", "cpu"])
def _backend(request: pytest.FixtureRequest):
    with using(request.param):
        yield


@pytest.mark.usefixtures("_backend")
def test_they_are_each_others_derivative() -> None:
    graph = random_batch([4, 0, 3], 2, 3)
    weight = torch.randn(graph.num_edges, 3, dtype=DOUBLE)
    u, x = torch.randn(2, graph.num_nodes, 3, dtype=DOUBLE)
    forward = (u * propagate(graph, weight, x)).sum()
    torch.testing.assert_close(forward, (weight * edge_product(graph, u, x)).sum())
    torch.testing.assert_close(forward, (x * propagate(graph.transpose(), weight, u)).sum())


@pytest.mark.usefixtures("_backend")
@pytest.mark.parametrize("operation", [propagate, edge_product])
def test_derivatives_of_every_order_and_mode(operation) -> None:
    graph = random_batch([3, 2], 2, 1)
    first = graph.num_edges if operation is propagate else graph.num_nodes
    inputs = (
        torch.randn(first, 2, dtype=DOUBLE, requires_grad=True),
        torch.randn(graph.num_nodes, 2, dtype=DOUBLE, requires_grad=True),
    )

    def function(a, b):
        return operation(graph, a, b)

    assert gradcheck(function, inputs, check_forward_ad=True)
    assert gradgradcheck(function, inputs, check_fwd_over_rev=True)


@pytest.mark.usefixtures("_backend")
@pytest.mark.parametrize("operation", [sum_edges, at_rows])
def test_sums_over_edges_and_values_at_rows_are_each_others_derivative(operation) -> None:
    graph = random_batch([3, 0, 2], 2, 1).transpose()
    rows = graph.num_edges if operation is sum_edges else graph.num_nodes
    values = torch.randn(rows, 2, dtype=DOUBLE, requires_grad=True)

    def function(values):
        return operation(graph, values)

    assert gradcheck(function, (values,), check_forward_ad=True)
    assert gradgradcheck(function, (values,), check_fwd_over_rev=True)
    u, v = torch.randn(graph.num_nodes, 2, dtype=DOUBLE), torch.randn(graph.num_edges, 2, dtype=DOUBLE)
    torch.testing.assert_close((u * sum_edges(graph, v)).sum(), (at_rows(graph, u) * v).sum())


@pytest.mark.usefixtures("_backend")
def test_derivatives_of_a_sum_over_ends() -> None:
    graph = random_batch([3, 0, 2], 2, 1)
    sizes = (graph.num_edges, graph.num_nodes, graph.num_nodes)
    inputs = tuple(torch.randn(size, 2, dtype=DOUBLE, requires_grad=True) for size in sizes)

    def function(values, u, x):
        return edge_sum(graph, values, u, x)

    assert gradcheck(function, inputs, check_forward_ad=True)
    assert gradgradcheck(function, inputs, check_fwd_over_rev=True)
    only = torch.autograd.grad(edge_sum(graph, inputs[0].detach(), inputs[1], inputs[2].detach()).sum(), inputs[1])[0]
    torch.testing.assert_close(only, graph.out_degree.unsqueeze(1).expand(-1, 2).to(DOUBLE))


def test_compiles_without_a_break() -> None:
    graph = random_batch([5, 4], 2, 1)
    weight = torch.randn(graph.num_edges, 2, requires_grad=True)
    x = torch.randn(graph.num_nodes, 2, requires_grad=True)

    def function(weight, x):
        product = edge_product(graph, propagate(graph, weight, x), x)
        return edge_sum(graph, product, x, sum_edges(graph, at_rows(graph, x))).sin().sum()

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    expected = torch.autograd.grad(function(weight, x), (weight, x))
    torch.testing.assert_close(torch.autograd.grad(compiled(weight, x), (weight, x)), expected)
