from __future__ import annotations

import pytest
import torch

from convergent import Graph, InputError
from convergent.baselines import IGNN
from convergent.baselines.ignn import perron, project_rows
from convergent.nn.model import count_parameters
from problems import random_batch

EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 5], [1, 2, 3, 0, 2, 5, 4]])


def test_parameters_of_the_paper() -> None:
    assert count_parameters(IGNN(1, 1, layers=4, hidden=(128,))) == 268_006


def test_the_projection_is_the_nearest_point() -> None:
    torch.manual_seed(0)
    matrix = torch.randn(20, 7, dtype=torch.float64) * torch.logspace(-2, 1, 20, dtype=torch.float64)[:, None]
    projected = project_rows(matrix, 0.9)
    sums = projected.abs().sum(1)
    assert (sums <= 0.9 + 1e-12).all()
    inside = matrix.abs().sum(1) <= 0.9
    assert torch.equal(projected[inside], matrix[inside])
    torch.testing.assert_close(sums[~inside], torch.full_like(sums[~inside], 0.9))
    for _ in range(200):  # no other point of the ball is nearer
        other = torch.randn_like(matrix)
        other = 0.9 * other / other.abs().sum(1, keepdim=True)
        assert ((matrix - projected).norm(dim=1) <= (matrix - other).norm(dim=1) + 1e-12).all()


@pytest.mark.parametrize("seed", range(5))
def test_the_perron_value_is_an_upper_bound(seed) -> None:
    graph = random_batch([30], 2.0, seed)
    adjacency = torch.rand(graph.num_edges, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    value, vector = perron(graph, adjacency)
    dense = torch.zeros(30, 30, dtype=torch.float64)
    dense.index_put_((graph.row.long(), graph.column.long()), adjacency.squeeze(1), accumulate=True)
    assert (vector > 0).all()
    assert value >= float(torch.linalg.eigvals(dense).abs().max()) - 1e-12
    assert (dense @ vector <= value * vector + 1e-12).all()


def test_it_converges_and_says_how_far_it_is() -> None:
    torch.manual_seed(0)
    model = IGNN(3, 2, layers=1, tol=1e-6).double()
    x, attributes, batch = torch.randn(6, 3).double(), torch.randn(7, 2).double(), torch.tensor([0, 0, 0, 0, 1, 1])
    answer, solution = model(x, EDGES, attributes, batch, return_solution=True)
    assert answer.shape == (6, 1)
    assert solution.converged.all()
    strict = IGNN(3, 2, layers=1, tol=1e-12, max_iterations=5000).double()
    strict.load_state_dict(model.state_dict())
    exact = strict(x, EDGES, attributes, batch, return_solution=True)[1].value
    error = torch.stack([(solution.value - exact).abs()[batch == graph].max() for graph in (0, 1)])
    assert (error <= solution.error_bound.squeeze(1) + 1e-9).all()


def test_the_gradient_is_that_of_the_fixed_point() -> None:
    torch.manual_seed(0)
    model = IGNN(2, 1, units=6, channels=3, width=8, hidden=(8,), tol=1e-13, max_iterations=2000).double()
    x = torch.randn(6, 2).double().requires_grad_()

    def answer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, {"weight": weight}, (x, Graph(EDGES, 6)))

    assert torch.autograd.gradcheck(answer, (x, model.weight), atol=1e-6)


def test_bad_settings() -> None:
    with pytest.raises(InputError, match="kappa: expected"):
        IGNN(1, 1, kappa=1.0)
    with pytest.raises(InputError, match="nonlinearity: expected an activation that does not expand"):
        IGNN(1, 1, nonlinearity="silu")
