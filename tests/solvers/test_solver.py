"""Properties that every method has, over the registry of methods."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from convergent import (
    GMRES,
    ActivatedMap,
    Anderson,
    Auto,
    BiCGStab,
    ConvergenceError,
    Deflated,
    Direct,
    Graph,
    InputError,
    LinearMap,
    Multigrid,
    Picard,
    solve,
)
from convergent.kernels import using
from convergent.solvers import Solver, decoded
from problems import DOUBLE, Case, cases, random_batch, random_map, true_error

METHODS = [Picard, Anderson, BiCGStab, GMRES, Direct, Deflated, Multigrid, Auto]


@pytest.mark.parametrize("method", METHODS)
def test_true_error_below_bound_below_tolerance(method: type[Solver]) -> None:
    """Thousands of random graphs: sizes 0 to 200, parallel edges, self loops, isolated nodes, unequal batches, either sign."""
    graphs = 0

    @settings(max_examples=130, suppress_health_check=list(HealthCheck))
    @given(cases())
    def check(case: Case) -> None:
        nonlocal graphs
        fixed = case.map()
        solution = solve(fixed, method(tol=1e-6, rtol=case.rtol))
        error = true_error(solution, fixed)
        assert (error <= solution.error_bound).all()
        assert (solution.error_bound <= 1e-6 + case.rtol * fixed.size(solution.value)).all()
        assert solution.converged.all()
        graphs += fixed.graph.num_graphs

    check()
    assert graphs > 250


@pytest.mark.parametrize("method", METHODS)
def test_what_overflows_on_the_way_is_handed_over(method: type[Solver]) -> None:
    """Products of such numbers leave float32, though the answer does not."""
    draw = torch.Generator().manual_seed(1)
    nodes = 40
    graph = Graph(torch.randint(nodes, (2, 320), generator=draw), nodes)
    weight = torch.randn(320, 4, generator=draw)
    weight *= 0.3 / torch.zeros(nodes, 4).index_add_(0, graph.row.long(), weight.abs())[graph.row.long()]
    fixed = LinearMap(graph, weight, 1e28 * torch.randn(nodes, 4, generator=draw))
    solution = solve(fixed, method(), x0=1e33 * torch.randn(nodes, 4, generator=draw))
    assert (true_error(solution, fixed) <= solution.error_bound).all()


@pytest.mark.parametrize("method", METHODS)
def test_float32_is_certified_too(method: type[Solver]) -> None:
    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @given(cases(largest=60, hardest=0.999))
    def check(case: Case) -> None:
        fixed = case.map(torch.float32)
        solution = solve(fixed, method())
        assert solution.value.dtype == torch.float32
        assert (true_error(solution, fixed) <= solution.error_bound).all()

    check()


@pytest.mark.parametrize("method", METHODS)
def test_reference_kernels_agree(method: type[Solver]) -> None:
    fixed = random_map(random_batch([12, 0, 1, 30], 3, 5), heads=3, gamma=0.95, kind="signed")
    fast = solve(fixed, method(tol=1e-9))
    with using("reference"):
        plain = solve(fixed, method(tol=1e-9))
    torch.testing.assert_close(fast.value, plain.value, atol=2e-9, rtol=0)
    assert (true_error(plain, fixed) <= plain.error_bound).all()


@pytest.mark.parametrize("method", METHODS)
def test_runs_are_deterministic(method: type[Solver]) -> None:
    fixed = random_map(random_batch([40, 50, 60], 6, 5), heads=16, gamma=0.95)
    first, second = solve(fixed, method()), solve(fixed, method())
    assert torch.equal(first.value, second.value)
    assert torch.equal(first.error_bound, second.error_bound)


@pytest.mark.parametrize("method", METHODS)
def test_a_graph_does_not_depend_on_its_neighbours(method: type[Solver]) -> None:
    """A slow graph in the batch is solved as well as alone, and a fast one takes no more steps than alone."""
    slow = random_map(random_batch([25], 2, 1), heads=1, gamma=0.999)
    fast = random_map(random_batch([25], 2, 2), heads=1, gamma=0.2)
    index = torch.cat([torch.stack([m.graph.row, m.graph.column]) + 25 * k for k, m in enumerate((fast, slow, fast))], 1)
    graph = Graph(index, 75, batch=torch.arange(3).repeat_interleave(25))
    both = LinearMap(graph, torch.cat([fast.weight, slow.weight, fast.weight]), torch.cat([fast.bias, slow.bias, fast.bias]))
    solution = solve(both, method())
    assert (true_error(solution, both) <= solution.error_bound).all()
    assert (solution.error_bound <= 1e-6).all()
    if method is Picard:
        assert solution.steps[0] == solution.steps[2] == solve(fast, Picard()).steps[0] < solution.steps[1]


@pytest.mark.parametrize("method", METHODS)
def test_warm_start_changes_the_work_not_the_answer(method: type[Solver]) -> None:
    fixed = random_map(random_batch([30, 20], 4, 5), gamma=0.95)
    cold = solve(fixed, method(tol=1e-8))
    warm = solve(fixed, method(tol=1e-6), x0=cold.value)
    assert warm.iterations == 0
    assert torch.equal(warm.value, cold.value)
    assert warm.value.data_ptr() != cold.value.data_ptr()
    near = solve(fixed, method(tol=1e-8), x0=cold.value + 1e-3)
    assert (true_error(near, fixed) <= near.error_bound).all()
    assert (near.error_bound <= 1e-8).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("nodes", "edges"), [(0, 0), (1, 0), (3, 0)])
def test_graphs_without_edges_are_their_bias(method: type[Solver], nodes: int, edges: int) -> None:
    graph = Graph(torch.zeros(2, edges, dtype=torch.long), nodes)
    bias = torch.randn(nodes, 2, dtype=DOUBLE)
    solution = solve(LinearMap(graph, torch.zeros(edges, 2, dtype=DOUBLE), bias), method())
    torch.testing.assert_close(solution.value, bias)
    assert solution.converged.tolist() == [True]


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_of_nothing(method: type[Solver]) -> None:
    graph = Graph(torch.zeros(2, 0, dtype=torch.long), 0, batch=torch.zeros(0, dtype=torch.long))
    solution = solve(LinearMap(graph, torch.zeros(0, 2), torch.zeros(0, 2)), method())
    assert solution.value.shape == (0, 2)
    assert solution.error_bound.shape == (0, 2)
    assert solution.iterations == 0


@pytest.mark.parametrize("method", METHODS)
def test_zero_heads_and_zero_bias(method: type[Solver]) -> None:
    graph = random_batch([4], 2, 0)
    assert solve(LinearMap(graph, torch.zeros(graph.num_edges, 0), torch.zeros(4, 0)), method()).value.shape == (4, 0)
    fixed = random_map(graph)
    still = solve(fixed.with_bias(torch.zeros_like(fixed.bias)), method())
    assert (still.value == 0).all()
    assert still.converged.all()


@pytest.mark.parametrize("method", [m for m in METHODS if not m.only_linear])
@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "tanh", "elu", "softsign", "silu", "mish", "gelu"])
def test_activated_maps(method: type[Solver], activation: str) -> None:
    linear = random_map(random_batch([30, 0, 12], 4, 3), heads=3, gamma=0.85, kind="signed")
    fixed = ActivatedMap(linear.graph, linear.weight, linear.bias, activation)
    solution = solve(fixed, method(tol=1e-8))
    truth = torch.zeros_like(linear.bias)
    for _ in range(1500):
        truth = fixed(truth)
    assert (fixed.size(solution.value - truth) <= solution.error_bound + 1e-14).all()
    assert (solution.error_bound <= 1e-8).all()


@pytest.mark.parametrize("method", METHODS)
def test_settings_survive_as_a_string(method: type[Solver]) -> None:
    solver = method(tol=1e-7, rtol=1e-3, max_iterations=17, throw=False, certify="tight", refine=True)
    assert decoded(solver.encoded()) == solver
    assert decoded(method().encoded()) == method()


def test_methods_take_their_own_setting_first() -> None:
    assert Anderson(3).depth == 3
    assert GMRES(7, tol=1e-3).restart == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tol": -1.0}, "tol: expected a number, 0 or more, but got -1.0"),
        ({"tol": float("nan")}, "tol: expected a number, 0 or more, but got nan"),
        ({"tol": "small"}, "tol: expected a number, 0 or more, but got 'small'"),
        ({"tol": 0.0}, "tol: expected a positive number, or a positive rtol, but got 0.0"),
        ({"max_iterations": 0}, "max_iterations: expected None or a whole number, 1 or more, but got 0"),
        ({"max_iterations": 2.5}, "max_iterations: expected None or a whole number, 1 or more, but got 2.5"),
        ({"certify": "loose"}, r"certify: expected one of \('auto', 'plain', 'tight'\), but got 'loose'"),
    ],
)
def test_bad_settings_are_named(arguments: dict, message: str) -> None:
    for method in METHODS:
        with pytest.raises(InputError, match=message):
            method(**arguments)


def test_methods_are_values() -> None:
    assert Picard(tol=1e-3) == Picard(tol=1e-3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Picard().tol = 1  # type: ignore[misc]


def test_a_base_solver_has_no_steps() -> None:
    fixed = random_map(random_batch([4], 2, 0))
    with pytest.raises(InputError, match="solver: expected a method, but got Solver"):
        solve(fixed, Solver())


def test_failure_carries_what_was_reached() -> None:
    fixed = random_map(random_batch([40], 3, 0), gamma=0.99)
    with pytest.raises(ConvergenceError, match="max_iterations=3") as caught:
        solve(fixed, Picard(max_iterations=3))
    assert caught.value.solution.iterations == 3
