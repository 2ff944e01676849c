from __future__ import annotations

import json

import pytest
import torch

from convergent import InputError
from convergent.nn.model import GraphModel
from convergent.nn.scaler import ScaledModel, Scaler


def test_columns_are_standardised_and_logs_added() -> None:
    values = torch.tensor([[1.0, 1e-6, 5.0], [2.0, 1e-3, 5.0], [3.0, 0.0, 5.0]])
    scaler = Scaler(3, logs=[1]).fit(values)
    scaled = scaler(values)
    assert scaled.shape == (3, 4)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(4), atol=1e-6, rtol=0)
    torch.testing.assert_close(scaled[:, [0, 1, 3]].std(0, correction=0), torch.ones(3))
    assert not scaled[:, 2].any()  # a constant
    assert torch.isfinite(scaled).all()  # the logarithm of zero is that of the smallest number seen


def test_the_way_back() -> None:
    values = torch.randn(10, 2) * 100 + 7
    scaler = Scaler(2).fit(values)
    torch.testing.assert_close(scaler.inverse(scaler(values)), values)
    assert Scaler(2).fit(torch.zeros(0, 2)).mean.tolist() == [0, 0]


def test_a_scaled_model_is_one_thing_on_disk() -> None:
    torch.manual_seed(0)
    settings = {"heads": 4, "outputs": 1}
    model = ScaledModel("ConvergentGraphSolver", settings, 2, 1, edge_logs=[0])
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    x, length, y = torch.randn(3, 2) * 1e-4, torch.tensor([[1e-5], [1e-3], [1e-4]]), torch.randn(3, 1) * 1e5
    model.fit(x, length, y)
    answer, solution = model(x, edges, length, return_solution=True)
    assert answer.shape == (3, 1)
    assert solution.converged.all()
    again = GraphModel.rebuild("ScaledModel", json.loads(json.dumps(model.settings)))
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(again(x, edges, length), answer)
    answer.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_classes_are_not_scaled() -> None:
    model = ScaledModel("ConvergentGraphSolver", {"heads": 4, "outputs": 3}, 2, 1, scale_answers=False, readout="sum")
    assert model.answers is None
    assert model(torch.randn(3, 2), torch.tensor([[0, 1], [1, 2]])).shape == (1, 3)


def test_bad_columns() -> None:
    with pytest.raises(InputError, match="logs: expected columns from 0 to 2 - 1"):
        Scaler(2, logs=[2])
    with pytest.raises(InputError, match=r"values: expected shape \[rows, 2\], but got \[3, 3\]"):
        Scaler(2).fit(torch.randn(3, 3))
