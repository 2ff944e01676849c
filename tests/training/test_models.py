from __future__ import annotations

import pytest
import torch

from convergent import InputError
from convergent.nn.model import count_parameters
from convergent.training.models import FEATURES, MODELS, find


@pytest.mark.parametrize("model", [model for model in MODELS if model.parameters], ids=lambda model: model.name)
def test_parameters_are_the_paper_s(model) -> None:
    assert count_parameters(model.build()) == model.parameters


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.task}: {model.name}")
def test_every_model_answers(model) -> None:
    torch.manual_seed(0)
    nodes, edges = FEATURES.get(model.task, (5, 1))
    built = model.build(nodes, edges)
    x, edge_index = torch.randn(4, nodes), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    answer, solution = built(x, edge_index, torch.rand(4, edges), return_solution=True)
    assert answer.shape == ((1, 1) if model.task == "classification" else (4, 1))
    assert solution is None or bool(torch.isfinite(solution.value).all())


def test_names_are_unique_in_a_task() -> None:
    keys = [(model.task, model.name) for model in MODELS]
    assert len(set(keys)) == len(keys)


def test_finding_a_model() -> None:
    assert find("cgs( 64 )", "value-iteration").settings["heads"] == 64
    with pytest.raises(InputError, match=r"model: expected one of CGS\(4\), CGS\(8\)"):
        find("CGS(5)", "pore-networks")
    with pytest.raises(InputError, match="task: expected one of classification, folder, pore-networks, value-iteration"):
        find("CGS(8)", "chess")
    with pytest.raises(InputError, match="node_features: expected the number of features of classification"):
        find("CGS(8)", "classification").build()
