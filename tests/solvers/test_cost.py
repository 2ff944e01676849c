"""Estimates of time: what they are for is the choice, so that is what is tested, with structures far from where it changes."""

from __future__ import annotations

import pytest
import torch

from convergent import Graph, LinearMap, weights
from convergent import factors as kept
from convergent.solvers import cost
from convergent.solvers.elimination import eliminates
from problems import grid, random_batch, random_map, star


def lattice(side: int) -> torch.Tensor:
    node = torch.arange(side**3).view(side, side, side)
    pairs = [(node.narrow(axis, 0, side - 1), node.narrow(axis, 1, side - 1)) for axis in range(3)]
    edges = torch.cat([torch.stack([one.flatten(), other.flatten()]) for one, other in pairs], 1)
    return torch.cat([edges, edges.flip(0)], 1)


def chains(count: int, length: int, batch: bool) -> Graph:
    edges = torch.cat([grid(length, 1) + length * copy for copy in range(count)], 1)
    number = torch.arange(count).repeat_interleave(length) if batch else None
    return Graph(edges, count * length, number)


ELIMINATED = {
    "chains": lambda: chains(40, 100, True),
    "chains in one graph": lambda: chains(40, 100, False),
    "grid": lambda: Graph(grid(60, 60), 3600),
    "larger grid": lambda: Graph(grid(150, 150), 22_500),
    "star": lambda: Graph(star(20_000), 20_001),
}
ITERATED = {
    "random": lambda: random_batch([3000], 8, 0),
    "larger random": lambda: random_batch([20_000], 8, 0),
    "small random": lambda: random_batch([40] * 30, 6, 0),
    "lattice": lambda: Graph(lattice(24), 24**3),
}


@pytest.mark.parametrize("name", ELIMINATED)
@pytest.mark.parametrize("gamma", [0.99, 0.9999])
def test_small_separators_are_eliminated(name: str, gamma: float) -> None:
    assert eliminates(random_map(ELIMINATED[name](), heads=1, gamma=gamma))


@pytest.mark.parametrize("name", ITERATED)
@pytest.mark.parametrize("gamma", [0.99, 0.9999])
def test_large_separators_are_not_and_no_symbolic_step_is_taken(name: str, gamma: float) -> None:
    graph = ITERATED[name]()
    assert not eliminates(random_map(graph, heads=4, gamma=gamma))
    assert "symbolic" not in graph.cache


@pytest.mark.parametrize("name", ELIMINATED)
def test_far_from_one_a_few_steps_are_enough(name: str) -> None:
    assert not eliminates(random_map(ELIMINATED[name](), heads=1, gamma=0.3))


def test_very_near_one_factors_certify() -> None:
    assert eliminates(random_map(random_batch([300], 6, 0), heads=1, gamma=1 - 1e-8))


def test_factors_that_are_known_are_used() -> None:
    fixed = random_map(random_batch([300], 6, 0), heads=1, gamma=0.995)
    assert not eliminates(fixed)
    kept.factors_of(fixed.graph, fixed.weight)
    assert eliminates(fixed)
    assert eliminates(fixed.transpose(fixed.bias))
    assert not eliminates(LinearMap(fixed.graph, fixed.weight.clone(), fixed.bias))


def test_the_estimate_from_the_shape_is_near_that_from_the_factors() -> None:
    for edges, nodes in ((grid(30, 30), 900), (grid(200, 100), 20_000), (lattice(12), 12**3)):
        graph = Graph(edges, nodes)
        rough, known = cost.elimination(graph, 2), cost.elimination(graph, 2, kept.symbolic_of(graph))
        assert 0.4 < rough / known < 2.5


def test_weights_that_spread_over_decades_are_eliminated_where_even_ones_are_not() -> None:
    graph = Graph(lattice(18), 18**3)
    half = torch.rand(graph.num_edges // 2, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wide = weights.softmax(graph, torch.cat([half, half]) * 18, 0.9999)
    even = weights.softmax(graph, torch.cat([half, half]), 0.9999)
    bias = torch.ones(graph.num_nodes, 1, dtype=torch.float64)
    assert cost.uneven(wide)
    assert not cost.uneven(even)
    assert cost.iterations(graph, 1, 0.9999, spread=True) > 5 * cost.iterations(graph, 1, 0.9999)
    assert eliminates(LinearMap(graph, wide, bias))


def test_no_nodes_no_edges() -> None:
    empty = Graph(torch.zeros(2, 0, dtype=torch.long), 0)
    assert cost.shape_of(empty).updates == 0
    alone = Graph(torch.zeros(2, 0, dtype=torch.long), 5)
    weight = weights.softmax(alone, torch.zeros(0, 1, dtype=torch.float64), 0.5)
    assert not eliminates(LinearMap(alone, weight, torch.ones(5, 1, dtype=torch.float64)))
