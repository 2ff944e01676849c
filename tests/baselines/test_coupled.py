from __future__ import annotations

import pytest
import torch

from convergent import Graph, Status
from convergent.baselines.coupled import Contraction, Limits, describe, implicit, steady_state

LIMITS = Limits(1e-13, 500)


def test_a_known_fixed_point_and_its_gradient() -> None:
    matrix = torch.tensor([[0.3, 0.2], [-0.1, 0.4]], dtype=torch.float64, requires_grad=True)
    bias = torch.tensor([[1.0, 2.0]], dtype=torch.float64, requires_grad=True)

    def answer(matrix: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        def step(x: torch.Tensor) -> torch.Tensor:
            return x @ matrix.T + bias

        x, steps = steady_state(step, torch.zeros_like(bias), LIMITS)
        assert steps < 100
        return implicit(step, x, LIMITS)

    exact = torch.linalg.solve(torch.eye(2, dtype=torch.float64) - matrix, bias.T).T
    torch.testing.assert_close(answer(matrix, bias), exact)
    assert torch.autograd.gradcheck(answer, (matrix, bias))


def test_without_gradients() -> None:
    with torch.no_grad():
        assert implicit(lambda x: x * 0.5, torch.ones(2, 2), LIMITS).tolist() == [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize("factor", [0.5, 0.99])
@pytest.mark.parametrize("tol", [1e-3, 1e-10])
def test_converged_where_the_bound_is_within_the_tolerance(factor: float, tol: float) -> None:
    """Two graphs of one node each; with steps of one length the errors differ by 1 / (1 - factor)."""
    graph = Graph(torch.zeros(2, 0, dtype=torch.long), 2, batch=torch.tensor([0, 1]))
    contraction = Contraction(graph, factor, torch.ones(2, 1, dtype=torch.float64))
    bias = torch.tensor([[1.0], [1e-4]], dtype=torch.float64)

    def step(x: torch.Tensor) -> torch.Tensor:
        return factor * x + bias

    for most in (3, 10, 10_000):
        limits = Limits(tol, most)
        x, steps = steady_state(step, torch.zeros_like(bias), limits, contraction)
        solution = describe(x, step(x), steps, limits, contraction)
        assert torch.equal(solution.converged, (solution.error_bound <= tol).all(1))
        assert ((solution.value - bias / (1 - factor)).abs() <= solution.error_bound * (1 + 1e-9) + 1e-13).all()
    assert solution.converged.all()
    assert steps < 10_000


def test_steps_that_are_only_rounding_end_it() -> None:
    graph = Graph(torch.zeros(2, 0, dtype=torch.long), 1)
    contraction = Contraction(graph, 0.9, torch.ones(1, 1))
    limits = Limits(1e-9, 10_000)

    def step(x: torch.Tensor) -> torch.Tensor:
        return 0.9 * x + 100

    x, steps = steady_state(step, torch.zeros(1, 1), limits, contraction)
    solution = describe(x, step(x) + 1e-4, steps, limits, contraction)
    assert steps < 300
    assert solution.status.item() == Status.PRECISION


def test_without_a_bound_it_is_steady_and_not_converged() -> None:
    graph = Graph(torch.zeros(2, 0, dtype=torch.long), 1)
    contraction = Contraction(graph, 1.0, torch.ones(1, 1))
    x, steps = steady_state(lambda x: x * 0.5, torch.ones(1, 1), Limits(1e-3, 100), contraction)
    solution = describe(x, x * 0.5, steps, Limits(1e-3, 100), contraction)
    assert steps == 10
    assert solution.status.item() == Status.STEADY
    assert torch.isinf(solution.error_bound).all()
    assert not solution.converged.any()
