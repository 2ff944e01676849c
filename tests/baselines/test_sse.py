from __future__ import annotations

import pytest
import torch

from convergent import InputError
from convergent.baselines import SSE
from convergent.nn.model import count_parameters

EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 5], [1, 2, 3, 0, 2, 5, 4]])


def test_parameters_of_the_paper() -> None:
    assert count_parameters(SSE(1, 1)) == 43_521


@pytest.mark.parametrize("aggregation", ["mean", "sum"])
def test_it_stands_still(aggregation) -> None:
    torch.manual_seed(0)
    model = SSE(3, 2, aggregation=aggregation, tol=1e-6, max_iterations=2000)
    x, attributes, batch = torch.randn(6, 3), torch.randn(7, 2), torch.tensor([0, 0, 0, 0, 1, 1])
    answer, solution = model(x, EDGES, attributes, batch, return_solution=True)
    assert answer.shape == (6, 1)
    assert solution.converged.all()
    assert torch.isinf(solution.error_bound).all()  # nothing certifies it
    answer.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_running_out_of_steps_shows() -> None:
    model = SSE(1, 1, tol=1e-9, max_iterations=2)
    _, solution = model(torch.ones(6, 1), EDGES, return_solution=True)
    assert not solution.converged.any()
    assert solution.iterations == 2


def test_bad_settings() -> None:
    with pytest.raises(InputError, match="damping: expected"):
        SSE(1, 1, damping=0)
