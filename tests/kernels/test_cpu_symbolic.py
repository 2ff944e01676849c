"""The elimination tree, column counts and fronts against sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convergent.kernels import cpu_symbolic
from convergent.kernels.cpu_ordering import symmetrised
from convergent.kernels.cpu_symbolic import ANCESTOR, COUNT, LEAF, PARENT
from convergent.kernels.reference_elimination import columns_of_factor


class Case:
    """A random graph in the order of its nodes, taken through the first steps."""

    def __init__(self, nodes: int, edges: list[tuple[int, int]]):
        self.nodes = nodes
        self.neighbours: list[set[int]] = [set() for _ in range(nodes)]
        for row, column in edges:
            if row != column:
                self.neighbours[row].add(column)
                self.neighbours[column].add(row)
        pointer = np.zeros(nodes + 1, np.int64)
        for row, _ in edges:
            pointer[row + 1] += 1
        column = np.array([column for _, column in sorted(edges)], np.int64)
        self.start, self.adjacency = np.empty(nodes + 1, np.int64), np.empty(2 * len(column), np.int64)
        symmetrised(0, nodes, pointer.cumsum(), column, self.start, self.adjacency, np.empty(nodes + 1, np.int64))
        self.order, self.position = np.arange(nodes), np.arange(nodes)
        self.tree = np.zeros((cpu_symbolic.FIELDS, nodes + 1), np.int64)
        structure = (nodes, self.start, self.adjacency, self.order, self.position)
        cpu_symbolic.elimination_tree(*structure, self.tree[PARENT], self.tree[ANCESTOR])
        self.parents = self.tree[PARENT, :nodes].copy()
        cpu_symbolic.postorder(nodes, self.tree, self.tree[PARENT], self.tree[LEAF])
        cpu_symbolic.renumber(nodes, self.tree[LEAF], self.order, self.position, self.tree)
        cpu_symbolic.column_counts(*structure, self.tree)

    def columns(self) -> list[list[int]]:
        """The positions that the column of each position reaches."""
        found = columns_of_factor(self.neighbours, self.order.tolist())
        return [sorted(int(self.position[node]) for node in column) for column in found]


graphs = st.integers(1, 14).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2), max_size=30)))


@given(graphs)
def test_parents_and_counts(drawn):
    case = Case(*drawn)
    before = columns_of_factor(case.neighbours, list(range(case.nodes)))
    assert case.parents.tolist() == [min(column, default=-1) for column in before]
    columns = case.columns()
    assert case.tree[PARENT, : case.nodes].tolist() == [min(column, default=-1) for column in columns]
    assert case.tree[COUNT, : case.nodes].tolist() == [1 + len(column) for column in columns]
    assert sum(map(len, before)) == sum(map(len, columns))  # a postorder fills in as much


@given(graphs)
def test_postorder_keeps_subtrees_together(drawn):
    case = Case(*drawn)
    parent = case.tree[PARENT, : case.nodes].tolist()
    below = [{i} for i in range(case.nodes)]
    for i, p in enumerate(parent):
        if p >= 0:
            assert p > i
            below[p] |= below[i]
    assert all(nodes == set(range(min(nodes), i + 1)) for i, nodes in enumerate(below))


def fronts_of(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[list[int]]]:
    width, rows, above = (np.empty(case.nodes, np.int64) for _ in range(3))
    found = cpu_symbolic.group_columns(case.nodes, case.tree, case.tree[LEAF], width, rows, above)
    args = (case.nodes, found, case.tree, case.tree[LEAF], width, rows, above, case.order, case.position)
    count = cpu_symbolic.number_fronts(*args)
    spare = np.empty((4, case.nodes + 1), np.int64)
    structure = (case.nodes, count, case.start, case.adjacency, case.order, case.position)
    beyond = cpu_symbolic.collect_rows(*structure, width, rows, above, spare)
    lists = [beyond[a:b].tolist() for a, b in zip(spare[0, :count], spare[0, 1 : count + 1], strict=True)]
    return width[:count], rows[:count], above[:count], lists


@given(graphs)
def test_fronts_hold_their_columns(drawn):
    case = Case(*drawn)
    width, rows, above, lists = fronts_of(case)
    columns = case.columns()
    ends = width.cumsum()
    assert ends[-1] == case.nodes
    assert sorted(case.order.tolist()) == list(range(case.nodes))
    for front, end in enumerate(ends.tolist()):
        pivots = set(range(end - int(width[front]), end))
        assert lists[front] == sorted(set().union(*(columns[k] for k in pivots)) - pivots)
        assert rows[front] == width[front] + len(lists[front])
        assert (above[front] < 0) == (not lists[front])
        if lists[front]:
            p = int(above[front])
            assert p > front
            there = set(range(int(ends[p] - width[p]), int(ends[p]))) | set(lists[p])
            assert lists[front][0] in range(int(ends[p] - width[p]), int(ends[p]))
            assert set(lists[front]) <= there


def test_estimates_are_those_of_dense_elimination():
    size = 9
    case = Case(size, [(i, j) for i in range(size) for j in range(i)])
    width, rows, _, lists = fronts_of(case)
    assert width.tolist() == [size]
    assert lists == [[]]
    assert cpu_symbolic.measure(1, width, rows) == (1, 0, size**2, sum(k * (k + 1) for k in range(size)))


@pytest.mark.parametrize("width", [1, 31, 32, 33, 64, 65, 1000])
def test_wide_fronts_are_cut(width):
    pieces = cpu_symbolic.pieces_of_width(width)
    assert (pieces - 1) * cpu_symbolic.WIDEST < width <= pieces * cpu_symbolic.WIDEST
