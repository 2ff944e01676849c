from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from convergent import Graph, InputError, LinearMap, weights
from problems import DOUBLE, random_batch


def row_sums(graph: Graph, weight: torch.Tensor) -> torch.Tensor:
    return torch.zeros(graph.num_nodes, weight.shape[1], dtype=weight.dtype).index_add(0, graph.row, weight.abs())


@given(st.integers(0, 2**31), st.floats(0.01, 0.99), st.sampled_from(["softmax", "signed", "degree"]), st.floats(0.1, 40))
def test_rows_stay_below_gamma(seed: int, gamma: float, kind: str, spread: float) -> None:
    graph = random_batch([6, 3], 3, seed)
    draw = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(graph.num_edges, 2, dtype=DOUBLE, generator=draw)
    weight = getattr(weights, kind)(graph, logits, gamma)
    assert (row_sums(graph, weight) <= gamma * (1 + 1e-12)).all()
    LinearMap(graph, weight, torch.zeros(graph.num_nodes, 2, dtype=DOUBLE))


def test_degree_is_equation_8() -> None:
    graph = Graph(torch.tensor([[0, 0, 1], [1, 2, 0]]), 3)
    logits = torch.tensor([[0.0], [2.0], [-1.0]])
    sigmoid = torch.sigmoid(logits) * torch.tensor([[0.25], [0.25], [0.5]])
    torch.testing.assert_close(weights.degree(graph, logits, 0.5), sigmoid)
    clipped = torch.tensor([[0.0], [0.25], [0.0]])
    torch.testing.assert_close(weights.degree(graph, logits, 0.5, squash="clip"), clipped)


def test_degree_follows_the_flow() -> None:
    index = torch.tensor([[0, 0, 1], [1, 2, 0]])
    logits = torch.zeros(3, 1)
    assert weights.signed(Graph(index, 3), logits + 9, 0.5)[:, 0].tolist() == pytest.approx([0.25, 0.25, 0.5])
    turned = Graph(index, 3, flow="source_to_target")
    assert weights.signed(turned, logits + 9, 0.5)[:, 0].tolist() == pytest.approx([0.5, 0.5, 0.5])


def test_softmax_rows_sum_to_gamma_even_for_huge_logits() -> None:
    graph = Graph(torch.tensor([[0, 0, 1], [1, 2, 0]]), 4)
    weight = weights.softmax(graph, torch.tensor([[1e4], [-1e4], [1e4]]), 0.9)
    torch.testing.assert_close(row_sums(graph, weight), torch.tensor([[0.9], [0.9], [0.0], [0.0]]))


def test_signed_weights_take_both_signs() -> None:
    graph = Graph(torch.tensor([[0, 0], [1, 2]]), 3)
    assert weights.signed(graph, torch.tensor([[3.0], [-3.0]]))[:, 0].sign().tolist() == [1, -1]


@pytest.mark.parametrize("shape", [(2,), (3, 2)])
def test_gamma_is_learnable_per_head_or_per_node(shape: tuple[int, ...]) -> None:
    graph = Graph(torch.tensor([[0, 0, 1], [1, 2, 0]]), 3)
    gamma = torch.full(shape, 0.5, requires_grad=True)
    for kind in (weights.softmax, weights.degree, weights.signed):
        (gradient,) = torch.autograd.grad(kind(graph, torch.ones(3, 2), gamma).sum(), gamma)
        assert gradient.shape == shape
        assert (gradient != 0).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gamma": 1.0}, "gamma: expected a number above 0 and below 1, but got 1.0"),
        ({"gamma": 0}, "gamma: expected a number above 0 and below 1, but got 0"),
        ({"gamma": "half"}, "gamma: expected a number above 0 and below 1, but got 'half'"),
        ({"gamma": torch.ones(3)}, r"gamma: expected shape \[\], \[2\] or \[3, 2\], but got \[3\]"),
        ({"logits": torch.ones(3)}, r"logits: expected shape \[2, heads\], but got \[3\]"),
        ({"logits": torch.ones(2, 2, dtype=torch.long)}, "logits: expected a floating point dtype, but got torch.int64"),
    ],
)
def test_bad_input_is_named(arguments: dict, message: str) -> None:
    graph = Graph(torch.tensor([[0, 0], [1, 2]]), 3)
    for kind in (weights.softmax, weights.degree, weights.signed):
        with pytest.raises(InputError, match=message):
            kind(graph, **{"logits": torch.ones(2, 2), **arguments})
    with pytest.raises(InputError, match="squash: expected one of"):
        weights.degree(graph, torch.ones(2, 2), squash="hard")


def test_gradients_are_the_same_every_time() -> None:
    """Threads that add up gradients in any order would change the last bits, and with them a training run."""
    draw = torch.Generator().manual_seed(0)
    graph = Graph(torch.randint(0, 50, (2, 20_000), generator=draw), 50)
    logits = torch.randn(20_000, 8, generator=draw).requires_grad_()
    cotangent = torch.randn(20_000, 8, generator=draw)
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        gradients = [torch.autograd.grad(weights.softmax(graph, logits, 0.9), logits, cotangent)[0] for _ in range(40)]
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(gradients[0], other) for other in gradients)
