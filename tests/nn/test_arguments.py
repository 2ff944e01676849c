from __future__ import annotations

import time

import pytest
import torch

from convergent import Auto, InputError, Picard
from convergent.nn import ConvergentGraphSolver
from convergent.nn.arguments import outline, solver_of
from convergent.nn.model import GraphModel
from convergent.training.models import MODELS

SMALL = {"node_features": 2, "edge_features": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": "x"}, "heads: expected a whole number from 1 to 1048576, but got 'x'"),
        ({"heads": 0}, "heads: expected"),
        ({"heads": 99999999999}, "heads: expected"),
        ({"heads": True}, "heads: expected"),
        ({"layers": 10**6}, "layers: expected a whole number from 1 to 1000, but got 1000000"),
        ({"hidden": 16}, "hidden: expected a list of whole numbers"),
        ({"hidden": [16, 0]}, "hidden: expected a list of whole numbers"),
        ({"dropout": 2}, "dropout: expected a number, 0 or more and below 1, but got 2"),
        ({"nonlinearity": "magic"}, "nonlinearity: expected one of identity"),
        ({"flow": "up"}, "flow: expected one of target_to_source, source_to_target, but got 'up'"),
        ({"fixed_bias": "x"}, "fixed_bias: expected true or false"),
        ({"solver": 5}, "solver: expected one of .*Auto.*, but got 5"),
        ({"colour": 1}, "settings: expected some of node_features, .*, but got 'colour'"),
        ({"heads": 10**6, "decoder": [10**6]}, "settings: expected a model of at most 1,073,741,824 numbers"),
    ],
)
def test_settings_of_models_have_types_and_limits(change, message) -> None:
    began = time.monotonic()
    with pytest.raises(InputError, match=message):
        GraphModel.rebuild("ConvergentGraphSolver", {**SMALL, **change})
    assert time.monotonic() - began < 20


def test_many_small_layers_are_too_many() -> None:
    with pytest.raises(InputError, match="in 20,000 tensors, but got a larger one"):
        GraphModel.rebuild("GNN", {**SMALL, "layers": 1000, "width": 1, "hidden": [1] * 20})


def test_solvers_come_as_text() -> None:
    assert solver_of("Auto") == Auto()
    assert solver_of("Picard;tol=1e-3;throw=False") == Picard(tol=1e-3, throw=False)
    assert solver_of(Auto(tol=1e-3)) == solver_of(Auto(tol=1e-3).encoded())
    for text, message in (
        ("Magic", "solver: expected one of"),
        ("", "solver: expected one of"),
        ("Auto;tol", "solver: expected settings as in"),
        ("Auto;tol=1e-3;tol=1e-4", "each once"),
        ("Auto;tol=x", "solver.tol: expected None or a number, but got 'x'"),
        ("Auto;tol=-1", "tol: expected a number, 0 or more"),
        ("Auto;colour=1", "solver: expected some of tol, .*, but got 'colour'"),
        ("Auto;tol=__import__('os')", "solver.tol: expected None or a number"),
    ):
        with pytest.raises(InputError, match=message):
            solver_of(text)


@pytest.mark.parametrize("kind", sorted({model.kind for model in MODELS}))
def test_an_outline_is_the_model_without_its_memory(kind) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    state = outline(GraphModel.maker(kind, SMALL))
    assert torch.equal(before, torch.get_rng_state())  # weights do not depend on whether somebody has looked
    assert {tensor.device.type for tensor in state.values()} == {"meta"}
    made = GraphModel.rebuild(kind, SMALL).state_dict()
    assert {name: tensor.shape for name, tensor in state.items()} == {name: tensor.shape for name, tensor in made.items()}


def test_a_limit_is_lifted_again() -> None:
    with pytest.raises(InputError, match="at most 10 numbers in 5 tensors"):
        outline(lambda: ConvergentGraphSolver(2, 1), 10, 5)
    assert ConvergentGraphSolver(2, 1).heads == 16
