"""What is learned on each task: where graphs come from, what the loss is, how an answer is judged, how to read more of its kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from convergent.errors import expect
from convergent.nn.model import READOUTS, GraphModel
from convergent.nn.scaler import ScaledModel
from convergent.settings import AtLeast, AtMost, Name, OneOf, Seed, Share, build, check_fields
from convergent.tasks import classification, pore_network, value_iteration
from convergent.tasks.batch import GraphBatch
from convergent.tasks.folder import Column, Schema, find_table, read_folder
from convergent.training.config import TrainConfig
from convergent.training.models import CLASSIFICATION, FOLDER, PORES, VALUE_ITERATION, Named, find

TRAINING, VALIDATION, FITTING, TEST = 0, 1, 2, 3  # streams of random numbers that never meet
FITTED = 64  # graphs that scales are taken from
OF_THE_TASK = ("node_features", "edge_features", "outputs", "flow")  # settings of a model that no run may change
LARGEST = "largest_"  # a measure of this name is summed up by its maximum, others by their mean

Measures = dict[str, Tensor]  # one number per graph, [G]


class Problem(ABC):
    """A task with its settings, for training and for judging what was trained.

    The first measure chooses the best model, and smaller is better.
    """

    kinds: ClassVar[dict[str, type[Problem]]] = {}
    task: ClassVar[str]
    settings_kind: ClassVar[type]  # a dataclass
    renew: ClassVar[int]  # steps after which graphs are renewed where the run does not say

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "task"):
            Problem.kinds[cls.task] = cls

    @staticmethod
    def of(config: TrainConfig) -> Problem:
        expect(config.task in Problem.kinds, "task", f"one of {', '.join(sorted(Problem.kinds))}", repr(config.task))
        return Problem.kinds[config.task](config)

    def __init__(self, config: TrainConfig):
        self.config = config

    def settings(self) -> Any:
        """The settings of the task, as an object that checks them."""
        return build(self.settings_kind, self.config.task_settings, "task_settings")

    def model_changes(self, *own: str) -> dict[str, Any]:
        """Changes to the model's settings; ``own`` are names that the task sets itself."""
        for name in self.config.model_settings:
            expect(name not in own, "model_settings", f"none of {', '.join(own)}, which follow from task {self.task}", repr(name))
        return self.config.model_settings

    @abstractmethod
    def batch(self, stream: int, number: int, graphs: int) -> GraphBatch:
        """The batch of that number in one of the streams: it depends on nothing else."""

    @abstractmethod
    def build(self) -> GraphModel:
        """The named model, untrained, with its scales fitted."""

    @abstractmethod
    def measure(self, prediction: Tensor, batch: GraphBatch) -> Measures: ...

    @property
    @abstractmethod
    def schema(self) -> Schema | None:
        """The columns of the tables that hold such networks; None: they are not read from tables."""

    def inputs(self) -> list[Path]:
        """The files that graphs are read from, if any."""
        return []

    def held_out(self, graphs: int) -> GraphBatch:
        """Graphs that are never trained on, the same ones every time."""
        return self.batch(VALIDATION, 0, graphs)

    def loss(self, model: GraphModel, prediction: Tensor, batch: GraphBatch) -> Tensor:
        """Squared errors, summed over the batch, in units of the answers' own spread where the model knows it."""
        scale = model.answers.std if isinstance(model, ScaledModel) and model.answers is not None else 1.0
        squares = ((prediction - batch.y) / scale).square()
        return (squares if batch.weight is None else squares * batch.weight).sum()

    def named(self) -> Named:
        return find(self.config.model, self.task)

    def scaled(self, sample: GraphBatch, node_logs: list[int], edge_logs: list[int]) -> ScaledModel:
        """The named model between scalers that are fitted to these graphs."""
        named = self.named()
        settings = {**named.settings, "outputs": sample.y.shape[1], **self.model_changes(*OF_THE_TASK, "readout")}
        features = (sample.x.shape[1], sample.edge_attr.shape[1])
        model = ScaledModel(named.kind, settings, *features, node_logs, edge_logs)
        return model.fit(sample.x, sample.edge_attr, sample.y)


def summary(measures: Mapping[str, Tensor]) -> dict[str, float]:
    """One number for many graphs: the mean, or the maximum of what is called largest."""
    return {name: float(each.max() if name.startswith(LARGEST) else each.mean()) for name, each in measures.items() if len(each)}


def node_errors(prediction: Tensor, batch: GraphBatch) -> Measures:
    """Errors of numbers at nodes."""
    error = (prediction.detach() - batch.y).double().abs()
    sizes = batch.sizes.clamp(min=1).double()

    def mean(values: Tensor) -> Tensor:
        return values.new_zeros(batch.num_graphs).index_add(0, batch.batch, values) / sizes

    worst = error.new_zeros(batch.num_graphs).scatter_reduce(0, batch.batch, error.amax(1), "amax")
    return {"mse": mean(error.square().mean(1)), "mean_error": mean(error.mean(1)), "largest_error": worst}


# --- generated ---


class Sampler(Protocol):
    def check_memory(self, graphs: int, name: str) -> None:
        """Raise unless so many graphs at once fit in memory; ``name`` is the setting that asks for them."""

    def sample(self, graphs: int, rng: np.random.Generator) -> GraphBatch: ...


class Generated(Problem):
    """Graphs are made as they are needed, by seed."""

    renew = 32

    def __init__(self, config: TrainConfig):
        super().__init__(config)
        self.sampler: Sampler = self.settings()
        for name in ("graphs", "validation_graphs"):
            self.sampler.check_memory(getattr(config, name), name)

    def batch(self, stream: int, number: int, graphs: int) -> GraphBatch:
        return self.sampler.sample(graphs, np.random.default_rng([self.config.seed, stream, number]))


class ValueIterationProblem(Generated):
    task, settings_kind = VALUE_ITERATION, value_iteration.ValueIteration

    def batch(self, stream: int, number: int, graphs: int) -> GraphBatch:
        if stream != TRAINING or not self.pool:
            return super().batch(stream, number, graphs)
        rng = np.random.default_rng([self.config.seed, stream, number])
        chosen = rng.choice(len(self.pool), graphs, replace=graphs > len(self.pool))
        return GraphBatch.join([self.pool[place] for place in chosen])

    @cached_property
    def pool(self) -> list[GraphBatch]:
        """The only graphs there are to train on; empty: there are always new ones."""
        size = self.settings().pool
        return self.sampler.sample(size, np.random.default_rng([self.config.seed, TRAINING])).split() if size else []

    def build(self) -> GraphModel:
        return self.named().build(**self.model_changes(*OF_THE_TASK, "readout"))

    def measure(self, prediction: Tensor, batch: GraphBatch) -> Measures:
        found = value_iteration.score(prediction, batch)
        return {"mape": found.mape, "policy_accuracy": found.accuracy}

    @property
    def schema(self) -> Schema:
        return Schema((Column("zero"),), (Column("reward"),), ("value",))


class PoreProblem(Generated):
    task, settings_kind = PORES, pore_network.PoreNetworks

    def build(self) -> GraphModel:
        sizes = [pore_network.NODE_FEATURES.index(name) for name in ("volume", "diameter")]
        return self.scaled(self.batch(FITTING, 0, FITTED), sizes, list(range(len(pore_network.EDGE_FEATURES))))

    def measure(self, prediction: Tensor, batch: GraphBatch) -> Measures:
        return node_errors(prediction, batch)

    @property
    def schema(self) -> Schema:
        nodes, edges = (tuple(map(Column, names)) for names in (pore_network.NODE_FEATURES, pore_network.EDGE_FEATURES))
        return Schema(nodes, edges, ("pressure",))


# --- read from disk ---


class Stored(Problem):
    """A fixed set of graphs, some of them held out; every epoch goes through the others in a new order."""

    renew = 1
    training: list[GraphBatch]
    validation: list[GraphBatch]

    def batch(self, stream: int, number: int, graphs: int) -> GraphBatch:
        if stream != TRAINING:
            return GraphBatch.join(self.validation)
        size = len(self.training)
        places = range(number * graphs, (number + 1) * graphs)  # in the sequence of all epochs
        orders = {epoch: self._order(epoch) for epoch in {place // size for place in places}}
        return GraphBatch.join([self.training[orders[place // size][place % size]] for place in places])

    def _order(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([self.config.seed, TRAINING, epoch]).permutation(len(self.training))


@dataclass(frozen=True)
class FolderSettings:
    """The user's own networks.

    Args:
        path: a folder with two tables, nodes and edges.
        targets: a column of nodes to predict, or several.
        validation: the share of the graphs that is held out for validation; a single graph is used for both.
        logs: columns of numbers, 0 or more, whose logarithm is added as a feature.
    """

    path: Name
    targets: tuple[Name, ...] | Name
    validation: Share = 0.2
    logs: tuple[Name, ...] | Name = ()

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("targets", "logs"):
            value = getattr(self, name)
            names = (value,) if isinstance(value, str) else value
            twice = [each for index, each in enumerate(names) if each in names[:index]]
            expect(not twice, name, "every column once", f"{twice[0]!r} twice" if twice else "")
            object.__setattr__(self, name, names)


class FolderProblem(Stored):
    task, settings_kind = FOLDER, FolderSettings

    def __init__(self, config: TrainConfig):
        super().__init__(config)
        self.given: FolderSettings = self.settings()
        folder = read_folder(self.given.path, targets=self.given.targets, logs=self.given.logs)
        self._schema, count = folder.schema, len(folder.graphs)
        expect(count >= 1, "path", "a folder with one graph or more", f"none in {self.given.path}")
        order = np.random.default_rng([config.seed, VALIDATION]).permutation(count)
        out = min(max(1, round(self.given.validation * count)), count - 1)
        self.training = [folder.graphs[index] for index in order[out:]]
        self.validation = [folder.graphs[index] for index in order[:out]] or self.training

    def build(self) -> GraphModel:
        logs = [_logs(columns) for columns in (self.schema.nodes, self.schema.edges)]
        return self.scaled(GraphBatch.join(self.training), *logs)

    def measure(self, prediction: Tensor, batch: GraphBatch) -> Measures:
        return node_errors(prediction, batch)

    @property
    def schema(self) -> Schema:
        return self._schema

    def inputs(self) -> list[Path]:
        return [find_table(Path(self.given.path), name) for name in ("nodes", "edges")]


def _logs(columns: tuple[Column, ...]) -> list[int]:
    """Where the columns stand among the features whose logarithm is added."""
    places = np.cumsum([0, *(column.width for column in columns)])
    return [int(place) for column, place in zip(columns, places[:-1], strict=True) if column.log]


@dataclass(frozen=True)
class ClassificationSettings:
    """One fold of one of the six sets.

    Args:
        name: a data set, such as MUTAG.
        fold: which of the ten folds is held out, 0 to 9.
        folds_seed: seed of the division into folds.
        data_root: a folder with the raw files; without it they are downloaded.
    """

    name: Annotated[str, OneOf(classification.SETS)]
    fold: Annotated[int, AtLeast(0), AtMost(classification.FOLDS - 1)] = 0
    folds_seed: Seed = 0
    data_root: Name | None = None

    def __post_init__(self) -> None:
        check_fields(self)


class ClassificationProblem(Stored):
    task, settings_kind = CLASSIFICATION, ClassificationSettings

    def __init__(self, config: TrainConfig):
        super().__init__(config)
        given: ClassificationSettings = self.settings()
        self.data = classification.load(given.name, given.data_root)
        train, test = classification.folds(self.data.labels, given.folds_seed)[given.fold]
        self.training = [self.data.graphs[index] for index in train]
        self.validation = [self.data.graphs[index] for index in test]

    def build(self) -> GraphModel:
        features, changes = self.training[0].x.shape[1], self.model_changes(*OF_THE_TASK)
        expect(changes.get("readout", "sum") is not None, "readout", f"one of {', '.join(READOUTS)}", None)
        return self.named().build(features, 1, outputs=self.data.classes, **changes)

    def loss(self, model: GraphModel, prediction: Tensor, batch: GraphBatch) -> Tensor:
        return torch.nn.functional.cross_entropy(prediction, batch.y, reduction="sum")

    def measure(self, prediction: Tensor, batch: GraphBatch) -> Measures:
        wrong = (prediction.argmax(1) != batch.y).double()
        return {"error": wrong, "accuracy": 1 - wrong}

    @property
    def schema(self) -> None:
        return None

    def inputs(self) -> list[Path]:
        return classification.raw_files(self.settings().name)
