"""How far apart nodes are, against networkx."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
import torch

from convergent import Graph
from convergent.kernels.cpu_depth import depths
from problems import grid, random_batch, star


def measured(graph: Graph) -> tuple[list[int], list[float], list[bool]]:
    count = graph.num_graphs
    depth, width, cycles = np.zeros(count, np.int64), np.zeros(count), np.zeros(count, np.bool_)
    pointer, column, _ = graph.rows
    depths(graph.segments.numpy(), pointer.numpy(), column.numpy(), depth, width, cycles)
    return depth.tolist(), width.tolist(), cycles.tolist()


def test_a_grid_a_star_and_a_chain() -> None:
    assert measured(Graph(grid(7, 4), 28)) == ([9], [pytest.approx((28 / 9) ** 3)], [True])
    assert measured(Graph(star(30), 31)) == ([2], [0.0], [False])
    assert measured(Graph(grid(50, 1), 50)) == ([49], [0.0], [False])


def test_parts_of_a_graph_are_measured_each() -> None:
    parts = torch.cat([grid(6, 3), grid(4, 1) + 18, grid(5, 5) + 22], 1)
    assert measured(Graph(parts, 48)) == ([8], [pytest.approx((18 / 7) ** 3 + (25 / 8) ** 3)], [True])


def test_graphs_of_a_batch_without_nodes_or_edges() -> None:
    edges = torch.cat([grid(6, 3), grid(4, 1) + 19], 1)
    batch = torch.tensor([0] * 18 + [2] + [3] * 4)
    depth, width, cycles = measured(Graph(edges, 23, batch))
    assert depth == [7, 0, 0, 3]
    assert width == [pytest.approx((18 / 7) ** 3), 0.0, 0.0, 0.0]
    assert cycles == [True, False, False, False]


@pytest.mark.parametrize("seed", range(5))
def test_between_half_the_diameter_and_all_of_it(seed: int) -> None:
    one_way = random_batch([80], 2, seed)
    both = torch.cat([torch.stack([one_way.row, one_way.column]), torch.stack([one_way.column, one_way.row])], 1)
    found = networkx.Graph(both.T.tolist())
    widest = max(networkx.diameter(found.subgraph(part)) for part in networkx.connected_components(found))
    (depth,), _, _ = measured(Graph(both, 80))
    assert widest <= 2 * depth
    assert depth <= widest
