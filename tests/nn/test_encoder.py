from __future__ import annotations

import pytest
import torch

from convergent import Graph, InputError
from convergent.nn import AttentionGN, GNLayer
from convergent.operations import sum_edges

GRAPH = Graph(torch.tensor([[0, 0, 1, 2, 2, 2], [1, 2, 2, 0, 1, 1]]), num_nodes=4)


def by_hand(layer: GNLayer, nodes: torch.Tensor, edges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same layer, edge by edge and node by node."""
    row, column = GRAPH.row.tolist(), GRAPH.column.tolist()
    ends = [torch.cat([edges[e], nodes[i], nodes[j]]) for e, (i, j) in enumerate(zip(row, column, strict=True))]
    messages = [layer.edge(end) for end in ends]
    scores = [layer.attention(end) for end in ends]
    answers = []
    for node in range(GRAPH.num_nodes):
        mine = [e for e, i in enumerate(row) if i == node]
        total = torch.zeros(messages[0].shape)
        if mine:
            share = torch.softmax(torch.stack([scores[e] for e in mine]), 0)
            total = sum(share[k] * messages[e] for k, e in enumerate(mine))
            if layer.aggregation == "mean":
                total = total / len(mine)
        answers.append(layer.node(torch.cat([total, nodes[node]])))
    return torch.stack(answers), torch.stack(messages)


@pytest.mark.parametrize("aggregation", ["sum", "mean"])
def test_a_layer_is_what_it_says(aggregation) -> None:
    torch.manual_seed(0)
    layer = GNLayer(3, 2, 5, 4, hidden=(8,), aggregation=aggregation)
    nodes, edges = torch.randn(4, 3), torch.randn(6, 2)
    for mine, truth in zip(layer(GRAPH, nodes, edges), by_hand(layer, nodes, edges), strict=True):
        torch.testing.assert_close(mine, truth)


def test_layers_follow_each_other() -> None:
    encoder = AttentionGN(3, 2, 7, 5, layers=3, width=6, hidden=(8, 8), last="identity")
    nodes, edges = encoder(GRAPH, torch.randn(4, 3), torch.randn(6, 2))
    assert (nodes.shape, edges.shape) == ((4, 7), (6, 5))
    assert len(encoder.layers) == 3


def test_gradients_reach_every_parameter() -> None:
    encoder = AttentionGN(3, 2, 4, 4, layers=2)
    nodes, edges = encoder(GRAPH, torch.randn(4, 3), torch.randn(6, 2))
    (nodes.square().sum() + edges.square().sum()).backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_sums_over_edges() -> None:
    values = torch.arange(12.0).view(6, 2)
    torch.testing.assert_close(sum_edges(GRAPH, values), torch.tensor([[2.0, 4.0], [4.0, 5.0], [24.0, 27.0], [0.0, 0.0]]))


def test_bad_settings() -> None:
    with pytest.raises(InputError, match="aggregation: expected one of"):
        GNLayer(1, 1, 1, 1, aggregation="max")
    with pytest.raises(InputError, match="layers: expected 1 or more"):
        AttentionGN(1, 1, 1, 1, layers=0)
