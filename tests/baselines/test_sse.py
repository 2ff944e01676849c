from __future__ import annotations

import pytest
import torch

from convergent import InputError, Status
from convergent.baselines import SSE
from convergent.baselines.coupled import Limits
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
    assert (solution.status == Status.STEADY).all()
    assert torch.isinf(solution.error_bound).all()  # nothing certifies it
    assert not solution.converged.any()
    answer.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("damping", [1.0, 0.3])
def test_a_bounded_map_settles_and_is_certified(damping) -> None:
    torch.manual_seed(0)
    model = SSE(3, 2, gain=0.9, damping=damping, tol=1e-5, max_iterations=1000).double()
    with torch.no_grad():
        model.first.weight.mul_(30)  # far from contracting without its bound
    inputs = torch.randn(6, 3).double(), EDGES, torch.randn(7, 2).double(), torch.tensor([0, 0, 0, 0, 1, 1])
    free = SSE(3, 2, damping=damping).double()
    free.load_state_dict(model.state_dict())
    assert (free(*inputs, return_solution=True)[1].status == Status.BUDGET).all()
    answer, solution = model(*inputs, return_solution=True)
    assert solution.converged.all()
    model.limits = Limits(1e-13, 10_000)
    _, exact = model(*inputs, return_solution=True)
    difference = (solution.value - exact.value).abs().amax(1)
    for graph in range(2):
        assert difference[inputs[3] == graph].max() <= solution.error_bound[graph].max()
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
    with pytest.raises(InputError, match="gain: expected"):
        SSE(1, 1, gain=1.0)
    with pytest.raises(InputError, match="aggregation: expected 'mean'"):
        SSE(1, 1, gain=0.9, aggregation="sum")
