"""The tables for a device: every front once and after its children, and room for every square while it is needed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from convergent.kernels import cuda_schedule
from convergent.kernels.cpu_fronts import ABOVE, ROWS, WIDTH
from convergent.kernels.cuda_schedule import Card, card_of
from convergent.kernels.elimination import Symbolic, analyse
from operators import make

CPU = torch.device("cpu")
SQUARE, CHILDREN, INVERSE = 4, 6, 7  # columns of the table


def carded(largest: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Symbolic, Card]:
    monkeypatch.setattr(cuda_schedule, "LARGEST", largest)
    p = make((7, 0, 150, 1, 40, 300), 1, permuted=True, degree=3)
    symbolic = analyse(p.rows, p.segments)
    return symbolic, card_of(symbolic, CPU)


@pytest.mark.parametrize("largest", [0, 12, 40, 1000])
def test_every_front_once_and_after_its_children(largest, monkeypatch):
    symbolic, card = carded(largest, monkeypatch)
    above, rows = symbolic.fronts.table[:-1, ABOVE].tolist(), symbolic.fronts.table[:-1, ROWS]
    taken: set[int] = set()
    for begin, end in zip(card.begins.tolist(), card.ends.tolist(), strict=True):
        assert all(rows[front] <= largest for front in range(begin, end))
        assert all(above[front] in range(front, end) for front in range(begin, end - 1))
        assert not taken & set(range(begin, end))
        taken |= set(range(begin, end))
    for fronts, following, _ in card.levels:
        level = fronts.tolist()
        assert following.tolist() == [front + 1 for front in level]
        below = [child for child, parent in enumerate(above) if parent in level]
        assert set(below) <= taken
        assert not taken & set(level)
        taken |= set(level)
    assert taken == set(range(len(above)))
    assert (not card.levels) == (largest == 1000)


@pytest.mark.parametrize("largest", [0, 12, 1000])
def test_squares_do_not_overlap_while_they_live(largest, monkeypatch):
    symbolic, card = carded(largest, monkeypatch)
    table = symbolic.fronts.table[:-1]
    left = table[:, ROWS] - table[:, WIDTH]
    begin = card.table[:-1, SQUARE].numpy()
    live = [front for a, b in zip(card.begins.tolist(), card.ends.tolist(), strict=True) for front in range(a, b)]
    for fronts, _, _ in [(torch.zeros(0, dtype=torch.long), None, None), *card.levels]:
        level = fronts.tolist()
        live += level
        spans = sorted((int(begin[f]), int(begin[f] + left[f] * (left[f] + 1))) for f in live if left[f])
        assert all(end <= following for (_, end), (following, _) in itertools.pairwise(spans))
        assert not spans or spans[-1][1] <= card.area
        live = [front for front in live if table[front, ABOVE] not in level]


def test_rows_of_a_parent_find_those_of_its_children(monkeypatch):
    symbolic, card = carded(40, monkeypatch)
    fronts, inverse = symbolic.fronts, card.inverse.numpy()
    for front in range(len(fronts.table) - 1):
        children = card.children[card.table[front, CHILDREN] : card.table[front + 1, CHILDREN]].tolist()
        assert children == np.flatnonzero(fronts.table[:-1, ABOVE] == front).tolist()
        for child in children:
            begin = int(card.table[child, INVERSE])
            back = inverse[begin : begin + fronts.table[front, ROWS]]
            into = fronts.into[fronts.table[child, 6] : fronts.table[child + 1, 6]]
            assert back[into].tolist() == list(range(len(into)))
            assert (back >= 0).sum() == len(into)


def test_tiles_cover_squares(monkeypatch):
    symbolic, card = carded(12, monkeypatch)
    left = symbolic.fronts.table[:-1, ROWS] - symbolic.fronts.table[:-1, WIDTH]
    for fronts, _, tiles in card.levels:
        for front in fronts.tolist():
            mine = tiles[tiles[:, 0] == front][:, 1:].tolist()
            side = cuda_schedule.SIDE
            size = int(left[front])
            assert mine == [[r, c] for r in range(0, size, side) for c in range(0, size + 1, side) if size]


def test_parallel_edges_meet_in_a_cell(monkeypatch):
    symbolic, card = carded(40, monkeypatch)
    pointer, edges = card.cells.tolist(), card.edges.tolist()
    assert sorted(edges) == list(range(len(symbolic.rows.column)))
    assert len(set(card.place.tolist())) == len(card.place)
    row = torch.repeat_interleave(torch.arange(symbolic.num_nodes), symbolic.rows.pointer.diff())
    ends = dict(zip(symbolic.rows.order.tolist(), zip(row.tolist(), symbolic.rows.column.tolist(), strict=True), strict=True))
    groups = [{ends[edge] for edge in edges[a:b]} for a, b in itertools.pairwise(pointer)]
    assert all(len(group) == 1 for group in groups)
    assert max(b - a for a, b in itertools.pairwise(pointer)) > 1
