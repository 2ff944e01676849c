from __future__ import annotations

import pytest
import torch

from convergent.kernels.activations import ACTIVATIONS

POINTS = torch.linspace(-12, 12, 2_000_001, dtype=torch.float64)


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_constant_is_the_largest_slope(name: str) -> None:
    _, derivative, lipschitz = ACTIVATIONS[name]
    slope = derivative(POINTS).abs().max()
    assert slope <= lipschitz
    assert slope >= lipschitz - 1e-6


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_derivative_is_the_derivative(name: str) -> None:
    function, derivative, _ = ACTIVATIONS[name]
    z = (torch.linspace(-4, 4, 1000, dtype=torch.float64) + 1e-3).requires_grad_()
    (expected,) = torch.autograd.grad(function(z).sum(), z)
    torch.testing.assert_close(derivative(z), expected)


def test_the_constants_above_one_are_those_of_the_literature() -> None:
    assert ACTIVATIONS["silu"].lipschitz == pytest.approx(1.0998, abs=1e-4)
    assert ACTIVATIONS["mish"].lipschitz == pytest.approx(1.0885, abs=1e-4)
    assert ACTIVATIONS["gelu"].lipschitz == pytest.approx(1.1289, abs=1e-4)
