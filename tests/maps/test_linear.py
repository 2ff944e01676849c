from __future__ import annotations

import pytest
import torch

from convergent import Graph, InputError, LinearMap, solve
from problems import DOUBLE, random_batch, random_map


def test_call_is_the_dense_product() -> None:
    fixed = random_map(random_batch([5, 0, 4], 3, 0), heads=3)
    x = torch.randn(9, 3, dtype=DOUBLE)
    expected = torch.einsum("hij,jh->ih", fixed.as_dense(), x) + fixed.bias
    torch.testing.assert_close(fixed(x), expected)
    torch.testing.assert_close(fixed.defect(x), expected - x)


def test_transpose_turns_the_matrix_and_the_norm() -> None:
    fixed = random_map(random_batch([5, 4], 3, 0), heads=3)
    turned = fixed.transpose()
    torch.testing.assert_close(turned.as_dense(), fixed.as_dense().transpose(1, 2))
    assert (fixed.norm, turned.norm, turned.transpose().norm) == ("max", "one", "max")
    assert (turned.bias == 0).all()
    torch.testing.assert_close(turned.contraction, fixed.contraction)


def test_contraction_is_per_graph_and_head() -> None:
    graph = Graph(torch.tensor([[0, 0, 1, 3], [1, 1, 0, 2]]), 4, batch=torch.tensor([0, 0, 1, 1]))
    weight = torch.tensor([[0.25, -0.5], [0.5, 0.25], [0.1, 0.0], [0.3, 0.2]], dtype=DOUBLE)
    fixed = LinearMap(graph, weight, torch.zeros(4, 2, dtype=DOUBLE))
    torch.testing.assert_close(fixed.contraction, torch.tensor([[0.75, 0.75], [0.3, 0.2]], dtype=DOUBLE))


def test_dominating_bounds_every_difference() -> None:
    for fixed in (random_map(random_batch([6], 3, 1), kind="signed"), random_map(random_batch([6], 3, 1)).transpose()):
        matrix = fixed.dominating().as_dense()
        expected = fixed.as_dense().abs() if fixed.norm == "max" else fixed.transpose().as_dense().abs()
        assert (matrix >= expected - 1e-15).all()
        assert fixed.dominating().norm == "max"


def test_restrict_is_the_map_on_some_graphs() -> None:
    fixed = random_map(random_batch([3, 4, 5], 3, 1))
    keep = torch.tensor([True, False, True])
    part = fixed.restrict(fixed.graph.subset(keep), keep)
    x = torch.randn(12, 2, dtype=DOUBLE)
    chosen = [0, 1, 2, 7, 8, 9, 10, 11]
    torch.testing.assert_close(part(x[chosen]), fixed(x)[chosen])
    torch.testing.assert_close(part.contraction, fixed.contraction[keep])


def test_repr() -> None:
    fixed = LinearMap(Graph(torch.tensor([[0], [1]]), 2), torch.tensor([[0.5]]), torch.zeros(2, 1))
    assert repr(fixed) == "LinearMap(nodes=2, heads=1, contraction=0.5)"


def test_a_right_hand_side_that_is_no_number_is_named() -> None:
    fixed = random_map(random_batch([9], 2, 3), gamma=0.9)
    with pytest.raises(InputError, match="bias: expected finite numbers, but got nan"):
        solve(fixed.with_bias(fixed.bias * torch.nan))
