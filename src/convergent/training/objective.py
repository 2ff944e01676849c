"""What is learned on each task: where graphs come from, what the loss is, and how an answer is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from convergent.errors import InputError, expect
from convergent.nn.model import GraphModel
from convergent.nn.scaler import ScaledModel
from convergent.tasks.batch import GraphBatch
from convergent.tasks.pore_network import EDGE_FEATURES, NODE_FEATURES, PoreNetworks
from convergent.tasks.value_iteration import ValueIteration, score
from convergent.training.config import TrainConfig
from convergent.training.models import PORES, VALUE_ITERATION, find

TRAINING, VALIDATION, FITTING = 0, 1, 2  # streams of random numbers that never meet


class Sampler(Protocol):
    def sample(self, graphs: int, rng: np.random.Generator) -> GraphBatch: ...


@dataclass(frozen=True)
class Objective:
    """A task for training.

    Attributes:
        sampler: makes the task from its settings.
        measure: of a prediction, for people; the first one chooses the best model, and smaller is better.
        logs: of which node and edge features the logarithm is added; None: features are used as they are.
    """

    sampler: Callable[..., Sampler]
    measure: Callable[[Tensor, GraphBatch], dict[str, float]]
    logs: tuple[list[int], list[int]] | None = None


def _value_errors(prediction: Tensor, batch: GraphBatch) -> dict[str, float]:
    found = score(prediction, batch)
    return {"mape": float(found.mape.mean()), "policy_accuracy": float(found.accuracy.mean())}


def _pressure_errors(prediction: Tensor, batch: GraphBatch) -> dict[str, float]:
    error = (prediction.detach() - batch.y).double()
    return {"mse": float(error.square().mean()), "largest_error": float(error.abs().max())}


_SIZES = ([NODE_FEATURES.index(name) for name in ("volume", "diameter")], list(range(len(EDGE_FEATURES))))

OBJECTIVES = {
    VALUE_ITERATION: Objective(ValueIteration, _value_errors),
    PORES: Objective(PoreNetworks, _pressure_errors, _SIZES),
}


def objective_of(config: TrainConfig) -> Objective:
    expect(config.task in OBJECTIVES, "task", f"one of {', '.join(OBJECTIVES)}", repr(config.task))
    return OBJECTIVES[config.task]


def sampler_of(config: TrainConfig) -> Sampler:
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in config.task_settings.items()}
    try:
        return objective_of(config).sampler(**settings)
    except TypeError as error:
        raise InputError(f"task_settings: expected settings of {config.task}, but got {sorted(settings)}") from error


def batch_of(config: TrainConfig, sampler: Sampler, stream: int, number: int, graphs: int) -> GraphBatch:
    """The batch of that number in one of the streams: it depends on nothing else."""
    return sampler.sample(graphs, np.random.default_rng([config.seed, stream, number]))


def build_model(config: TrainConfig) -> GraphModel:
    """The named model, between scalers fitted to graphs of their own where the task has units."""
    named, objective = find(config.model, config.task), objective_of(config)
    if objective.logs is None:
        return named.build(**config.model_settings)
    settings: dict[str, Any] = {**named.settings, "outputs": 1, **config.model_settings}
    sample = batch_of(config, sampler_of(config), FITTING, 0, 64)
    features = (sample.x.shape[1], sample.edge_attr.shape[1])
    model = ScaledModel(named.kind, settings, *features, *objective.logs)
    return model.fit(sample.x, sample.edge_attr, sample.y)
