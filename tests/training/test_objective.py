from __future__ import annotations

import pytest
import torch

from convergent import InputError
from convergent.training.config import TrainConfig
from convergent.training.objective import TRAINING, VALIDATION, batch_of, build_model, objective_of, sampler_of


def config(**changes) -> TrainConfig:
    return TrainConfig(**{"task": "value-iteration", "model": "CGS(16)", **changes})


def test_a_batch_depends_on_its_number_alone() -> None:
    sampler = sampler_of(config())
    first = batch_of(config(), sampler, TRAINING, 3, 2)
    assert torch.equal(first.y, batch_of(config(), sampler, TRAINING, 3, 2).y)
    for other in (
        batch_of(config(), sampler, TRAINING, 4, 2),
        batch_of(config(), sampler, VALIDATION, 3, 2),
        batch_of(config(seed=1), sampler, TRAINING, 3, 2),
    ):
        assert first.y.shape != other.y.shape or not torch.equal(first.y, other.y)


def test_models_and_measures() -> None:
    for task, names in (("value-iteration", {"mape", "policy_accuracy"}), ("pore-networks", {"mse", "largest_error"})):
        settings = config(task=task, model="CGS(8)")
        batch = batch_of(settings, sampler_of(settings), VALIDATION, 0, 2)
        prediction = build_model(settings)(batch.x, batch.graph, batch.edge_attr)
        assert set(objective_of(settings).measure(prediction, batch)) == names


def test_bad_tasks() -> None:
    with pytest.raises(InputError, match="task: expected one of value-iteration, pore-networks"):
        objective_of(config(task="chess"))
    with pytest.raises(InputError, match="task_settings: expected settings of value-iteration"):
        sampler_of(config(task_settings={"colour": 3}))
