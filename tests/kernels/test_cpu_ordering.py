"""The order of elimination against exact minimum degree."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convergent.kernels.cpu_ordering import FIELDS, minimum_degree, symmetrised
from convergent.kernels.reference_elimination import columns_of_factor
from convergent.kernels.reference_elimination import minimum_degree as exact_minimum_degree


def structure(nodes: int, edges: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    pointer = np.zeros(nodes + 1, np.int64)
    for row, _ in edges:
        pointer[row + 1] += 1
    return pointer.cumsum(), np.array([column for _, column in sorted(edges)], np.int64)


def neighbours_of(nodes: int, edges: list[tuple[int, int]]) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in range(nodes)]
    for row, column in edges:
        if row != column:
            found[row].add(column)
            found[column].add(row)
    return found


def ordered(nodes: int, edges: list[tuple[int, int]], limit: float = np.inf) -> tuple[list[int], float]:
    pointer, column = structure(nodes, edges)
    start, adjacency = np.empty(nodes + 1, np.int64), np.empty(2 * len(column), np.int64)
    symmetrised(0, nodes, pointer, column, start, adjacency, np.empty(nodes + 1, np.int64))
    quotient, order = np.empty((FIELDS, nodes + 1), np.int64), np.empty(nodes, np.int64)
    lists = np.empty((2, 4 * len(column) + 2 * nodes + 2), np.int64)
    work = minimum_degree(nodes, start, adjacency, quotient, lists[0], lists[1], limit, order)
    return order.tolist(), work


def fill(nodes: int, edges: list[tuple[int, int]], order: list[int]) -> int:
    return sum(map(len, columns_of_factor(neighbours_of(nodes, edges), order)))


def random_edges(nodes: int, degree: int, seed: int) -> list[tuple[int, int]]:
    rng = np.random.default_rng(seed)
    return [(int(a), int(b)) for a, b in rng.integers(0, nodes, (nodes * degree, 2))]


def grid_edges(side: int) -> list[tuple[int, int]]:
    across = [(i * side + j, i * side + j + 1) for i in range(side) for j in range(side - 1)]
    down = [(i * side + j, (i + 1) * side + j) for i in range(side - 1) for j in range(side)]
    return across + down


@given(st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2), max_size=40))))
def test_neighbours_once_and_in_both_directions(drawn):
    nodes, edges = drawn
    pointer, column = structure(nodes, edges)
    start, adjacency = np.empty(nodes + 1, np.int64), np.empty(2 * len(column), np.int64)
    symmetrised(0, nodes, pointer, column, start, adjacency, np.empty(nodes + 1, np.int64))
    lists = [adjacency[a:b].tolist() for a, b in pairwise(start)]
    assert [sorted(nodes) for nodes in lists] == [sorted(nodes) for nodes in neighbours_of(nodes, edges)]


@given(st.integers(1, 25).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2), max_size=80))))
def test_every_node_once(drawn):
    order, _ = ordered(*drawn)
    assert sorted(order) == list(range(drawn[0]))


@pytest.mark.parametrize("edges", [random_edges(120, 2, 0), random_edges(200, 1, 1), random_edges(60, 8, 2), grid_edges(14)])
def test_fill_is_near_that_of_exact_minimum_degree(edges):
    nodes = 1 + max(map(max, edges))
    order, work = ordered(nodes, edges)
    exact = fill(nodes, edges, exact_minimum_degree(neighbours_of(nodes, edges)))
    assert fill(nodes, edges, order) <= 1.15 * exact
    assert work >= sum(len(column) * (len(column) + 1) for column in columns_of_factor(neighbours_of(nodes, edges), order))


def test_trees_do_not_fill_in():
    edges = [(i, (i - 1) // 3) for i in range(1, 300)]
    order, _ = ordered(300, edges)
    assert fill(300, edges, order) == 299


def test_a_hub_goes_last():
    edges = [(i, 0) for i in range(1, 4000)]
    order, _ = ordered(4000, edges)
    assert order[-1] == 0
    assert fill(4000, edges, order) == 3999


def test_lists_are_compacted_when_they_run_out_of_room():
    edges = grid_edges(12)
    pointer, column = structure(144, edges)
    start, adjacency = np.empty(145, np.int64), np.empty(2 * len(column), np.int64)
    symmetrised(0, 144, pointer, column, start, adjacency, np.empty(145, np.int64))
    found = []
    for room in (len(adjacency) + 144, 40 * len(adjacency)):
        quotient, order = np.empty((FIELDS, 145), np.int64), np.empty(144, np.int64)
        minimum_degree(144, start, adjacency, quotient, np.empty(room, np.int64), np.empty(room, np.int64), np.inf, order)
        found.append(order.tolist())
    assert found[0] == found[1]


def test_gives_up_at_the_limit():
    edges = random_edges(400, 6, 0)
    _, work = ordered(400, edges)
    _, until = ordered(400, edges, limit=work / 10)
    assert work / 10 < until < work / 2
