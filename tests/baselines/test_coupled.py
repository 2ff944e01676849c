from __future__ import annotations

import torch

from convergent.baselines.coupled import Limits, implicit, steady_state

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
