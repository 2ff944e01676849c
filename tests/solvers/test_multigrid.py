"""Multigrid: the algebra of its levels, its answers against a sparse LU, and how its steps grow."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings

from convergent import Graph, LinearMap, solve, weights
from convergent.kernels import using
from convergent.kernels.reference import Rows, row_of_position
from convergent.solvers import Multigrid, run
from convergent.solvers import multigrid as module
from problems import Case, cases, grid, random_batch, random_map, star, true_error

DOUBLE = torch.float64


def dense(rows: Rows, values: torch.Tensor, columns: int) -> torch.Tensor:
    """[rows, columns] of the first head."""
    matrix = torch.zeros(len(rows.pointer) - 1, columns, dtype=DOUBLE)
    return matrix.index_put((row_of_position(rows), rows.column.long()), values[:, 0].double(), accumulate=True)


def binary_tree(nodes: int) -> torch.Tensor:
    child = torch.arange(1, nodes)
    edges = torch.stack([child, (child - 1) // 2])
    return torch.cat([edges, edges.flip(0)], 1)


def chain(nodes: int) -> torch.Tensor:
    return grid(nodes, 1)


def cube(side: int) -> torch.Tensor:
    node = torch.arange(side**3).view(side, side, side)
    pairs = [(node.narrow(d, 0, side - 1), node.narrow(d, 1, side - 1)) for d in range(3)]
    edges = torch.cat([torch.stack([a.flatten(), b.flatten()]) for a, b in pairs], 1)
    return torch.cat([edges, edges.flip(0)], 1)


GRAPHS = {
    "grid": lambda: Graph(grid(40, 30), 1200),
    "chain": lambda: Graph(chain(700), 700),
    "tree": lambda: Graph(binary_tree(600), 600),
    "star": lambda: Graph(star(300), 301),
    "cube": lambda: Graph(cube(9), 729),
    "random": lambda: random_batch([500], 3, 1),
    "expander": lambda: random_batch([400], 16, 2),
    "batch": lambda: random_batch([200, 0, 1, 300, 5], 2, 3),
}
MOST = {"chain": 300, "tree": 200}  # steps; drift along a line traps the walk, and aggregates do not see it
every_graph = pytest.mark.parametrize("name", GRAPHS)


@every_graph
def test_levels_are_galerkin_products(name):
    graph = GRAPHS[name]()
    fixed = random_map(graph, heads=1, gamma=0.99)
    operators = module.Cycle(fixed, DOUBLE).operators
    assert len(operators) > 1
    whole = torch.eye(graph.num_nodes, dtype=DOUBLE) - fixed.as_dense()[0]
    for fine, coarse in pairwise(operators):
        level, nodes = fine.level, len(fine.rows.pointer) - 1
        inverse = torch.ones(nodes, dtype=DOUBLE) if fine.inverse is None else fine.inverse[:, 0]
        matrix = torch.diag(1 / inverse) - dense(fine.rows, fine.weight, nodes)
        torch.testing.assert_close(matrix, whole)
        smoother = torch.eye(nodes, dtype=DOUBLE) - level.omega * inverse[:, None] * matrix
        injection = torch.zeros(nodes, level.columns, dtype=DOUBLE)
        injection[level.groups.column.long(), row_of_position(level.groups)] = 1
        mean = injection.T / injection.sum(0)[:, None]
        prolongation = dense(level.once, fine.prolongation, level.columns)
        torch.testing.assert_close(prolongation, smoother @ injection)
        restriction = mean - mean @ matrix * (level.omega * inverse)
        whole = restriction @ matrix @ prolongation
        others = (whole - torch.diag(whole.diagonal())).abs().sum(1)
        assert (whole.diagonal() > 0.1 * others).all()
        stored = torch.diag(1 / coarse.inverse[:, 0]) - dense(coarse.rows, coarse.weight, level.columns)
        torch.testing.assert_close(stored, whole, rtol=1e-9, atol=1e-12)
        r = torch.randn(nodes, 1, dtype=DOUBLE)
        with using("reference"):
            restricted = module.backend(r).restrict(fine.rows, fine.weight, fine.inverse, r, level.groups, level.omega)
        torch.testing.assert_close(restricted, restriction @ r)


@every_graph
def test_edges_shrink_to_nothing(name):
    levels, bottom, loops = module.build(Rows(*GRAPHS[name]().rows[:2], None))
    sizes = [len(level.rows.column) for level in levels] + [len(bottom.column)]
    nodes = [len(level.rows.pointer) - 1 for level in levels] + [len(bottom.pointer) - 1]
    assert len(loops) == len(bottom.column)
    for (more, less), count in zip(pairwise(sizes), nodes[1:], strict=True):
        assert 2 * less <= more or less == count
    assert sum(sizes) < 2.2 * sizes[0]


def test_levels_without_smoothing_contract():
    graph = random_batch([400], 16, 2)
    fixed = random_map(graph, heads=1, gamma=0.99)
    fine, coarse, *_ = module.Cycle(fixed, DOUBLE).operators
    assert fine.level.omega == 0  # smoothed transfers would fill in
    outside = torch.zeros(fine.level.columns, dtype=DOUBLE).index_add_(0, row_of_position(coarse.rows), coarse.weight[:, 0].abs())
    assert (outside + (1 - 1 / coarse.inverse[:, 0]).abs() <= 0.99 + 1e-12).all()


@every_graph
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", ["softmax", "signed"])
def test_solves_like_a_direct_method(name, transposed, kind):
    fixed = random_map(GRAPHS[name](), heads=3, gamma=0.999, kind=kind)
    fixed = fixed.transpose(fixed.bias) if transposed else fixed
    tol = 1e-5 if transposed else 1e-7  # the norm of an adjoint is a sum over nodes
    solution = run(Multigrid(tol=tol), fixed)
    assert solution.converged.all()
    assert solution.method == "Multigrid"
    assert solution.iterations <= MOST.get(name, 40)
    assert (solution.error_bound <= tol).all()
    assert (true_error(solution, fixed) <= solution.error_bound).all()


@given(cases(largest=120))
@settings(max_examples=25)
def test_never_wrong(case: Case):
    fixed = case.map()
    solution = run(Multigrid(tol=1e-6, rtol=case.rtol), fixed)
    assert solution.converged.all()
    assert (true_error(solution, fixed) <= solution.error_bound).all()


@pytest.mark.parametrize("gamma", [0.99, 0.9999])
def test_single_precision_with_refinement(gamma):
    fixed = random_map(GRAPHS["grid"](), heads=4, gamma=gamma, dtype=torch.float32)
    solution = run(Multigrid(tol=1e-6, refine=True), fixed)
    assert solution.method == "Multigrid"
    assert (true_error(solution, fixed) <= 1e-6).all()


def test_precision_follows_the_contraction():
    near, far = (random_map(GRAPHS["grid"](), gamma=gamma, dtype=torch.float32) for gamma in (0.99, 0.99999))
    assert module._prepared(near).dtype == torch.float32
    assert module._prepared(far).dtype == DOUBLE


@pytest.mark.parametrize("graph", [Graph(grid(12, 10), 120), random_batch([40, 0, 1, 60], 2, 3)], ids=["grid", "batch"])
def test_reference_kernels(graph):
    fixed = random_map(graph, gamma=0.99)
    with using("reference"):
        solution = run(Multigrid(tol=1e-6), fixed)
    assert solution.method == "Multigrid"
    assert (true_error(solution, fixed) <= solution.error_bound).all()


@pytest.mark.parametrize("nodes", [0, 1, 5])
def test_without_edges(nodes):
    graph = Graph(torch.zeros(2, 0, dtype=torch.long), nodes)
    bias = torch.randn(nodes, 2, dtype=DOUBLE)
    solution = run(Multigrid(), LinearMap(graph, torch.zeros(0, 2, dtype=DOUBLE), bias))
    torch.testing.assert_close(solution.value, bias)


def steps(edges: torch.Tensor, nodes: int, gamma: float, **how) -> int:
    torch.manual_seed(0)
    graph = Graph(edges, nodes)
    fixed = LinearMap(
        graph, weights.softmax(graph, torch.randn(graph.num_edges, 1, dtype=DOUBLE), gamma), torch.randn(nodes, 1, dtype=DOUBLE)
    )
    solution = run(Multigrid(**how), fixed)
    assert solution.method == "Multigrid"
    return solution.iterations


def test_steps_grow_slowly_with_size():
    small, large = (steps(grid(side, side), side**2, 0.9999, tol=1e-5) for side in (32, 128))
    assert large < 2 * small
    assert large <= 30


def test_steps_grow_slowly_towards_one():
    easy, hard = (steps(cube(14), 14**3, gamma, tol=1e-6, rtol=1e-6) for gamma in (0.99, 0.999999))
    assert hard < 2 * easy


def test_steps_do_not_depend_on_the_numbering():
    place = torch.randperm(160 * 160, generator=torch.Generator().manual_seed(0))  # enough edges for sweeps in blocks
    straight, shuffled = (steps(edges, 160 * 160, 0.99, tol=1e-6) for edges in (grid(160, 160), place[grid(160, 160)]))
    assert shuffled <= 1.3 * straight


def test_gradients_through_the_transposed_solve():
    graph = Graph(grid(4, 3), 12)
    logits = torch.randn(graph.num_edges, 2, dtype=DOUBLE, requires_grad=True)
    bias = torch.randn(12, 2, dtype=DOUBLE, requires_grad=True)

    def value(logits, bias):
        return solve(LinearMap(graph, weights.softmax(graph, logits, 0.99), bias), Multigrid(tol=1e-10)).value

    assert torch.autograd.gradcheck(value, (logits, bias), atol=1e-5, fast_mode=True)


def test_hierarchy_is_kept_and_numbers_follow_the_weights():
    graph = Graph(grid(20, 20), 400)
    fixed = random_map(graph, gamma=0.99)
    first = module.hierarchy(graph)
    assert module.hierarchy(graph) is first
    known = module._prepared(fixed)
    assert module._prepared(fixed.with_bias(2 * fixed.bias)) is known
    fixed.weight.mul_(0.5)
    assert module._prepared(fixed) is not known


def test_the_adjoint_has_a_cycle_of_its_own() -> None:
    """A map and its adjoint share their weights, not their operator."""
    graph = Graph(grid(40, 40), 1600)
    fixed = random_map(graph, heads=1, gamma=0.9999)
    forward = solve(fixed, Multigrid(tol=1e-8))
    bias = torch.rand(1600, 1, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    backward = solve(fixed.transpose(bias), Multigrid(tol=0.0, rtol=1e-8))
    assert forward.method == backward.method == "Multigrid"
    assert backward.iterations <= 2 * forward.iterations


def test_the_same_weights_on_another_graph() -> None:
    weight, bias = torch.full((8, 1), 0.4, dtype=DOUBLE), torch.ones(5, 1, dtype=DOUBLE)
    ring = Graph(torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3], [1, 2, 3, 0, 3, 0, 1, 2]]), 5)
    path = Graph(torch.tensor([[0, 1, 2, 3, 1, 2, 3, 4], [1, 2, 3, 4, 0, 1, 2, 3]]), 5)
    for graph in (ring, path):
        fixed = LinearMap(graph, weight, bias)
        assert (true_error(solve(fixed, Multigrid()), fixed) <= 1e-6).all()


def test_cycles_go_when_their_weights_do() -> None:
    graph = Graph(grid(20, 20), 400)
    fixed = random_map(graph, heads=1, gamma=0.99)
    solve(fixed, Multigrid())
    alive = weakref.ref(module._prepared(fixed))
    assert alive() is not None
    del fixed
    gc.collect()
    assert alive() is None
