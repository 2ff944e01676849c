"""Nested dissection against minimum degree."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from convergent.kernels import cpu_elimination, cpu_ordering
from convergent.kernels.cpu_dissection import dissect
from convergent.kernels.elimination import analyse, factor
from convergent.kernels.reference import Rows
from lattices import lattice
from operators import make


def dissected(start: np.ndarray, neighbours: np.ndarray, limit: float = np.inf) -> tuple[bool, np.ndarray]:
    nodes = len(start) - 1
    quotient, order = np.empty((cpu_ordering.FIELDS, nodes + 1), np.int64), np.empty(nodes, np.int64)
    lists = np.empty((2, 2 * len(neighbours) + 2 * nodes + 2), np.int64)
    return dissect(nodes, start, neighbours, quotient, lists[0], lists[1], limit, order), order


@pytest.mark.parametrize("sides", [(30, 30), (9, 9, 9), (1000,), (5, 5)])
def test_every_node_once(sides):
    complete, order = dissected(*lattice(*sides))
    assert complete
    assert sorted(order.tolist()) == list(range(int(np.prod(sides))))


def test_no_edges_and_cliques():
    nothing = np.zeros(501, np.int64), np.zeros(0, np.int64)
    assert sorted(dissected(*nothing)[1].tolist()) == list(range(500))
    nodes = 250
    clique = np.arange(nodes + 1) * (nodes - 1), np.array([j for i in range(nodes) for j in range(nodes) if j != i])
    assert sorted(dissected(*clique)[1].tolist()) == list(range(nodes))


def test_gives_up_where_a_separator_costs_too_much():
    start, neighbours = lattice(12, 12, 12)
    assert dissected(start, neighbours, limit=2e6)[0]
    assert not dissected(start, neighbours, limit=2e5)[0]


def test_a_cube_fills_in_less(monkeypatch):
    start, neighbours = lattice(32, 32, 32)
    rows, segments = Rows(torch.from_numpy(start), torch.from_numpy(neighbours), None), torch.tensor([0, 32**3])
    flops = []
    for least in (0.0, np.inf):
        monkeypatch.setattr(cpu_elimination, "DISSECTED", least)
        flops.append(analyse(rows, segments).flops[0])
    assert flops[0] < 0.8 * flops[1]


def test_solves_are_the_same(monkeypatch):
    p = make((700, 30, 1500), 2, degree=2)
    found = []
    for least in (0.0, np.inf):
        monkeypatch.setattr(cpu_elimination, "DISSECTED", least)
        found.append(factor(analyse(p.rows, p.segments), p.weight)[0].solve(p.bias))
    torch.testing.assert_close(*found)
