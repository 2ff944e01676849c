"""The tables that the numeric step follows: what they say of each other, and that no two numbers share a place."""

from __future__ import annotations

import numpy as np
import pytest

from convergent.kernels.cpu_elimination import places
from convergent.kernels.cpu_fronts import ABOVE, CHILD, FIRST, PANEL, POINTER, ROWS, SIBLING, SQUARE, STRIDE, WIDTH
from convergent.kernels.elimination import Symbolic, analyse
from operators import make

SIZES = (7, 0, 150, 1, 40, 300)


@pytest.fixture(scope="module")
def symbolic() -> Symbolic:
    p = make(SIZES, 1, permuted=True, degree=3)
    return analyse(p.rows, p.segments)


def children(table: np.ndarray, front: int) -> list[int]:
    found, child = [], table[front, CHILD]
    while child >= 0:
        found.append(int(child))
        child = table[child, SIBLING]
    return found


def test_fronts_cover_every_node(symbolic):
    table, bounds = symbolic.fronts.table, symbolic.fronts.bounds
    for graph, (first, last) in enumerate(zip(symbolic.segments[:-1].tolist(), symbolic.segments[1:].tolist(), strict=True)):
        mine = table[bounds[graph] : bounds[graph + 1]]
        assert mine[:, WIDTH].sum() == last - first
        assert mine[:, FIRST].tolist() == [first + int(k) for k in mine[:, WIDTH].cumsum() - mine[:, WIDTH]]
        order = symbolic.fronts.order[first:last]
        assert sorted(order.tolist()) == list(range(last - first))
        assert symbolic.fronts.position[first:last][order].tolist() == list(range(last - first))


def test_a_wide_front_is_a_chain(symbolic):
    assert symbolic.fronts.table[:-1, WIDTH].max() <= 32
    assert symbolic.flops[-1] > 1e5  # so that one was cut


def test_rows_are_rows_of_the_parent(symbolic):
    table, index, into = symbolic.fronts.table, symbolic.fronts.beyond, symbolic.fronts.into
    for front in range(len(table) - 1):
        part = slice(table[front, POINTER], table[front + 1, POINTER])
        assert part.stop - part.start == table[front, ROWS] - table[front, WIDTH]
        assert (np.diff(index[part]) > 0).all()
        parent = table[front, ABOVE]
        assert all(table[child, ABOVE] == front for child in children(table, front))
        if parent < 0:
            assert part.start == part.stop
            continue
        assert front in children(table, parent)
        pivots = np.arange(table[parent, FIRST], table[parent, FIRST] + table[parent, WIDTH])
        there = np.concatenate([pivots, index[table[parent, POINTER] : table[parent + 1, POINTER]]])
        assert there[into[part]].tolist() == index[part].tolist()


@pytest.mark.parametrize("group", [1, 2, 4, 8])
def test_places(symbolic, group):
    where, table = places(symbolic, group), symbolic.fronts.table
    layout = where.layout
    assert (layout[:-1, STRIDE] % group == 0).all()
    assert (layout[:-1, STRIDE] > table[:-1, ROWS]).all()
    assert np.diff(layout[:, PANEL]).tolist() == (2 * table[:-1, WIDTH] * layout[:-1, STRIDE]).tolist()
    row = np.repeat(np.arange(symbolic.num_nodes), symbolic.rows.pointer.diff().numpy())
    column = symbolic.rows.column.numpy()
    cells = dict(zip(zip(row.tolist(), column.tolist(), strict=True), where.place.tolist(), strict=True))
    assert len(set(cells.values())) == len(cells)  # only parallel edges share a place
    assert not set(cells.values()) & set(where.corner[:, 0].tolist())
    loops = {i: place for (i, j), place in cells.items() if i == j}
    assert loops
    assert all(where.corner[i, 1] == place for i, place in loops.items())


@pytest.mark.parametrize("group", [1, 8])
def test_squares_do_not_overlap_while_they_live(symbolic, group):
    where, table = places(symbolic, group), symbolic.fronts.table
    others = table[:-1, ROWS] - table[:-1, WIDTH]
    size = others * -(-(others + 1) // group) * group
    for graph in range(symbolic.num_graphs):
        live: dict[int, range] = {}
        for front in range(symbolic.fronts.bounds[graph], symbolic.fronts.bounds[graph + 1]):
            begin = int(where.layout[front, SQUARE])
            mine = range(begin, begin + int(size[front]))
            assert mine.stop <= where.room[graph]
            assert all(mine.stop <= other.start or other.stop <= mine.start or not mine for other in live.values())
            for child in children(table, front):
                del live[child]
            if len(mine):
                live[front] = mine
        assert not live
