from __future__ import annotations

import json

import pytest
import torch

from convergent import ConvergenceError, Graph, InputError, Picard
from convergent.nn import ConvergentGraphSolver
from convergent.nn.model import GraphModel, count_parameters

EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 5], [1, 2, 3, 0, 2, 5, 4]])
BATCH = torch.tensor([0, 0, 0, 0, 1, 1])
VALUE_ITERATION = {"layers": 4, "hidden": (128,)}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def inputs() -> tuple[torch.Tensor, ...]:
    return torch.randn(6, 3), EDGES, torch.randn(7, 2), BATCH


# The paper's own counts.
@pytest.mark.parametrize(
    ("settings", "parameters"),
    [
        ({"heads": 16, **VALUE_ITERATION}, 258_469),
        ({"heads": 32, **VALUE_ITERATION}, 265_669),
        ({"heads": 64, **VALUE_ITERATION}, 280_069),
        ({"heads": 16, "layers": 1, "hidden": (128,)}, 10_786),
        ({"heads": 16, "layers": 2, "hidden": (128,)}, 93_347),
        ({"heads": 16, "layers": 3, "hidden": (128,)}, 175_908),
        ({"heads": 16, "fixed_bias": True, **VALUE_ITERATION}, 258_485),
        ({"heads": 32, "fixed_bias": True, **VALUE_ITERATION}, 265_701),
        ({"heads": 64, "fixed_bias": True, **VALUE_ITERATION}, 280_133),
    ],
)
def test_parameters_of_the_paper(settings, parameters) -> None:
    assert count_parameters(ConvergentGraphSolver(1, 1, **settings)) == parameters


@pytest.mark.parametrize("normalization", ["clip", "sigmoid", "softmax", "signed"])
@pytest.mark.parametrize("nonlinearity", ["identity", "tanh"])
def test_answers_per_node(normalization, nonlinearity) -> None:
    model = ConvergentGraphSolver(3, 2, heads=5, outputs=2, normalization=normalization, nonlinearity=nonlinearity)
    answer, solution = model(*inputs(), return_solution=True)
    assert answer.shape == (6, 2)
    assert solution.converged.all()
    assert solution.error_bound.shape == (2, 5)
    answer.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("readout", ["sum", "mean", "max"])
def test_answers_per_graph(readout) -> None:
    model = ConvergentGraphSolver(3, 2, heads=5, outputs=3, readout=readout)
    x, edges, attributes, batch = inputs()
    both = model(x, edges, attributes, batch)
    alone = model(x[4:], edges[:, 5:] - 4, attributes[5:])
    assert both.shape == (2, 3)
    torch.testing.assert_close(both[1:], alone, atol=1e-5, rtol=1e-5)


def test_a_graph_in_place_of_its_edges() -> None:
    model = ConvergentGraphSolver(3, 2, heads=4)
    x, edges, attributes, batch = inputs()
    torch.testing.assert_close(model(x, Graph(edges, 6, batch=batch), attributes), model(x, edges, attributes, batch))


def test_no_edge_features_and_flat_ones() -> None:
    model = ConvergentGraphSolver(1, 1, heads=4)
    torch.testing.assert_close(model(torch.ones(6), EDGES), model(torch.ones(6, 1), EDGES, torch.ones(7)))


def test_the_fixed_bias_replaces_the_encoder_s() -> None:
    model = ConvergentGraphSolver(3, 2, heads=4, fixed_bias=True)
    prepared = model.prepare(*inputs())
    assert not model.map(prepared).bias.any()
    model.bias.data.fill_(2.0)
    assert (model.map(prepared).bias == 2).all()


def test_settings_rebuild_the_model() -> None:
    model = ConvergentGraphSolver(3, 2, heads=4, hidden=(16, 16), solver=Picard(tol=1e-4))
    settings = json.loads(json.dumps(model.settings))
    again = GraphModel.rebuild("ConvergentGraphSolver", settings)
    again.load_state_dict(model.state_dict())
    assert again.settings == model.settings
    assert again.solver == Picard(tol=1e-4)
    data = inputs()
    torch.testing.assert_close(again(*data), model(*data))


def test_reset_parameters() -> None:
    model = ConvergentGraphSolver(3, 2, heads=4, fixed_bias=True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.reset_parameters()
    assert any(not torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_bad_input_is_named() -> None:
    model = ConvergentGraphSolver(3, 2, heads=4)
    x, edges, attributes, batch = inputs()
    with pytest.raises(InputError, match=r"x: expected shape \[6, 3\], but got \[6, 2\]"):
        model(x[:, :2], edges, attributes, batch)
    with pytest.raises(InputError, match=r"edge_attr: expected shape \[7, 2\], but got \[7, 1\]"):
        model(x, edges, attributes[:, :1], batch)
    with pytest.raises(InputError, match=r"x: expected shape \[5, 3\], but got \[6, 3\]"):
        model(x, Graph(edges[:, :5], 5), attributes[:5])
    with pytest.raises(InputError, match="readout: expected None or one of"):
        ConvergentGraphSolver(3, 2, readout="median")
    with pytest.raises(InputError, match="gamma: expected"):
        ConvergentGraphSolver(3, 2, gamma=1.5)
    with pytest.raises(InputError, match="kind: expected one of"):
        GraphModel.rebuild("Magic", {})


def test_a_forgiving_model_reports_what_it_could_not_reach() -> None:
    model = ConvergentGraphSolver(1, 1, heads=2, solver=Picard(tol=1e-12, max_iterations=1))
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    with pytest.raises(ConvergenceError):
        model(torch.ones(3, 1), edges)
    _, solution = model.forgiving()(torch.ones(3, 1), edges, return_solution=True)
    assert not solution.converged.any()
