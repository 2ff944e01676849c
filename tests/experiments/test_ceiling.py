"""The ceiling that labels of equal graphs set."""

from __future__ import annotations

import torch

from convergent.experiments.ceiling import kinds_of, most
from convergent.tasks.batch import GraphBatch


def graph(edges: list[tuple[int, int]], features: list[float]) -> GraphBatch:
    both = torch.tensor([*edges, *((b, a) for a, b in edges)]).t()
    x = torch.tensor(features).unsqueeze(1)
    return GraphBatch(x, both, torch.ones(both.shape[1], 1), torch.zeros(1), torch.zeros(len(x), dtype=torch.long), 1)


def ring(first: int, nodes: int) -> list[tuple[int, int]]:
    return [(first + node, first + (node + 1) % nodes) for node in range(nodes)]


def test_graphs_are_known_whatever_the_order_of_their_nodes() -> None:
    path, turned = graph([(0, 1), (1, 2)], [1, 2, 3]), graph([(2, 0), (0, 1)], [2, 1, 3])
    star = graph([(0, 1), (0, 2)], [1, 2, 3])
    kinds = kinds_of([path, turned, star])
    assert kinds[0] == kinds[1] != kinds[2]


def test_colour_refinement_cannot_count_rings() -> None:
    six, threes, seven = graph(ring(0, 6), [0] * 6), graph([*ring(0, 3), *ring(3, 3)], [0] * 6), graph(ring(0, 7), [0] * 7)
    kinds = kinds_of([six, threes, seven])
    assert kinds[0] == kinds[1] != kinds[2]


def test_what_takes_many_rounds_is_told_apart() -> None:
    chains = [graph([(node, node + 1) for node in range(9)], [float(node == place) for node in range(10)]) for place in (3, 4, 5)]
    kinds = kinds_of(chains)
    assert kinds[0] != kinds[1]
    assert kinds[1] == kinds[2]  # the same one from its other end


def test_the_most_that_can_be_right() -> None:
    assert most([7, 7, 7, 8, 8], [0, 0, 1, 1, 2]) == 3 / 5
