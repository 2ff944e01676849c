from __future__ import annotations

import pytest
import torch

from convergent import ActivatedMap, ContractionError, Graph
from convergent.kernels.activations import ACTIVATIONS
from problems import DOUBLE, random_batch, random_map


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_call_contraction_and_linearisation(activation: str) -> None:
    linear = random_map(random_batch([5, 4], 3, 0), heads=3, gamma=0.8)
    fixed = ActivatedMap(linear.graph, linear.weight, linear.bias, activation)
    function, _, lipschitz = ACTIVATIONS[activation]
    x = torch.randn(9, 3, dtype=DOUBLE)
    torch.testing.assert_close(fixed(x), function(linear(x)))
    torch.testing.assert_close(fixed.contraction, lipschitz * linear.contraction)
    step = 1e-6 * torch.randn(9, 3, dtype=DOUBLE)
    torch.testing.assert_close((fixed(x + step) - fixed(x)) / 1e-6, fixed.linearize(x)(step) / 1e-6, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(fixed.transpose(at=x).as_dense(), fixed.linearize(x).as_dense().transpose(1, 2))


def test_slopes_above_one_are_counted() -> None:
    graph = Graph(torch.tensor([[0], [1]]), 2)
    weight, bias = torch.tensor([[0.9]]), torch.zeros(2, 1)
    ActivatedMap(graph, weight, bias, "tanh")
    with pytest.raises(ContractionError, match=r"but got 1\.016.* in graph 0, head 0"):
        ActivatedMap(graph, weight, bias, "gelu")


def test_repr() -> None:
    fixed = ActivatedMap(Graph(torch.tensor([[0], [1]]), 2), torch.tensor([[0.5]]), torch.zeros(2, 1), "tanh")
    assert repr(fixed) == "ActivatedMap(nodes=2, heads=1, contraction=0.5, tanh)"
