"""Separators: that they separate, that both sides are large, and that they are small."""

from __future__ import annotations

import numpy as np
import pytest

from convergent.kernels import cpu_bisection
from convergent.kernels.cpu_bisection import FIELDS, LEVELS, SEPARATOR, UNEVEN, bisect, pop, push
from lattices import lattice


def parts_of(start: np.ndarray, neighbours: np.ndarray) -> np.ndarray:
    nodes, edges = len(start) - 1, len(neighbours)
    starts, weight = np.zeros(4 * nodes + LEVELS, np.int64), np.ones(4 * nodes, np.int64)
    starts[: nodes + 1] = start
    around, strength = np.zeros(6 * edges + 1, np.int64), np.ones(6 * edges + 1, np.int64)
    around[:edges] = neighbours
    coarse, part = np.empty(4 * nodes, np.int64), np.empty(4 * nodes, np.int64)
    scratch, queue = np.empty((FIELDS, nodes + 1), np.int64), np.empty((2, 16 * nodes + 1024), np.int64)
    bisect(nodes, np.empty((LEVELS, 3), np.int64), starts, around, strength, weight, coarse, part, scratch, queue)
    return part[:nodes]


@pytest.mark.parametrize(("sides", "most"), [((40, 40), 44), ((12, 12, 12), 165), ((300, 4), 5), ((700,), 1)])
def test_separators_of_grids(sides, most):
    start, neighbours = lattice(*sides)
    part = parts_of(start, neighbours)
    row = np.repeat(np.arange(len(start) - 1), np.diff(start))
    assert not ((part[row] == 0) & (part[neighbours] == 1)).any()
    sizes = np.bincount(part, minlength=3)
    assert max(sizes[:2]) <= UNEVEN * len(part)
    assert sizes[SEPARATOR] <= most


def test_two_components_need_no_separator():
    start, neighbours = lattice(15, 20)
    both = np.concatenate([start, start[1:] + start[-1]]), np.concatenate([neighbours, neighbours + 300])
    part = parts_of(*both)
    assert (part != SEPARATOR).all()
    assert np.bincount(part).tolist() == [300, 300]


def test_a_clique_has_two_sides_at_most_on_paper():
    nodes = 250
    start = np.arange(nodes + 1) * (nodes - 1)
    neighbours = np.array([j for i in range(nodes) for j in range(nodes) if j != i])
    part = parts_of(start, neighbours)
    assert min(np.bincount(part, minlength=3)[:2]) == 0


def test_the_queue_gives_the_largest_first():
    rng = np.random.default_rng(0)
    gains = rng.integers(-50, 50, 200)
    queue, size = np.empty((2, 150), np.int64), 0
    for number, gain in enumerate(gains.tolist()):
        size = push(queue, size, gain, number)
    assert size == 150  # it forgets what does not fit
    found = []
    while size:
        size = pop(queue, size)
        assert gains[queue[1, size]] == queue[0, size]
        found.append(int(queue[0, size]))
    assert found == sorted(gains[:150].tolist(), reverse=True)


def test_merged_graphs_keep_weights_and_ties():
    start, neighbours = lattice(9, 11)
    nodes, edges = 99, len(neighbours)
    weight, strength = np.arange(1, nodes + 1), np.ones(edges, np.int64)
    coarse, order = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    count = cpu_bisection.match_neighbours(nodes, start, neighbours, strength, weight, 1e9, order, coarse)
    assert nodes / 2 <= count < 0.7 * nodes
    assert np.bincount(coarse).max() == 2
    after = [np.zeros(size, np.int64) for size in (nodes + 1, edges, edges, nodes)]
    scratch = np.empty((3, nodes), np.int64)
    cpu_bisection.merge(nodes, start, neighbours, strength, weight, coarse, count, scratch[0], scratch[1:], *after)
    dense, row = np.zeros((count, count), np.int64), np.repeat(np.arange(nodes), np.diff(start))
    np.add.at(dense, (coarse[row], coarse[neighbours]), 1)
    np.fill_diagonal(dense, 0)
    mine = np.zeros_like(dense)
    top = after[0][count]
    mine[np.repeat(np.arange(count), np.diff(after[0][: count + 1])), after[1][:top]] = after[2][:top]
    assert (mine == dense).all()
    assert after[3][:count].tolist() == np.bincount(coarse, weight).astype(int).tolist()
