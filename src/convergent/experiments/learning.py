"""Work: train a model and test it."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from convergent.experiments.job import Job
from convergent.nn.model import count_parameters
from convergent.storage.files import write_atomically
from convergent.tasks.batch import GraphBatch
from convergent.training.config import TrainConfig
from convergent.training.evaluate import Trained, unseen
from convergent.training.problem import TEST, Problem
from convergent.training.run import CONFIG, VALIDATIONS, read_rows
from convergent.training.train import train

SHARED = "CONVERGENT_SHARED"  # the variable with the folder in which processes of one run leave graphs for each other
TEST_SEED = 10_000  # of all test graphs, which are the same for every model


def training_job(
    title: str, config: TrainConfig, tests: dict[str, dict[str, Any]], graphs: int, show: Sequence[dict[str, Any]] = ()
) -> Job:
    """Train as ``config`` says, and test on ``graphs`` graphs of each of ``tests``, which change the settings of the task.

    Of a graph of each of ``show`` the answers themselves are kept, to be drawn.
    """
    settings = {"seed": config.seed, "config": config.to_json(), "tests": tests, "graphs": graphs}
    return Job(title, "learning:learn", {**settings, "show": list(show)} if show else settings)


def learn(settings: dict[str, Any], device: str, scratch: Path) -> dict[str, Any]:
    """The model that a run keeps, its best one by validation, tested."""
    config = TrainConfig.from_json(settings["config"])
    result = train(config, scratch, resume=(scratch / CONFIG).exists(), device=device)
    trained = Trained.load(scratch, device)
    return {
        "parameters": count_parameters(trained.model),
        "seconds": result["seconds"],
        "solves": result["solves"],
        "curve": read_rows(scratch / VALIDATIONS),
        "shown": [shown(trained, changes) for changes in settings.get("show", ())],
        "tests": {name: test(trained, changes, settings["graphs"]) for name, changes in settings["tests"].items()},
    }


def test(trained: Trained, changes: dict[str, Any], graphs: int) -> dict[str, Any]:
    """Mean and standard deviation over graphs of every measure."""
    problem = trained.problem(changes, seed=TEST_SEED)
    found: dict[str, list[Tensor]] = {}
    for batch in unseen_graphs(problem.task, problem.config.task_settings, graphs):
        prediction, _ = trained(batch)
        for name, each in problem.measure(prediction, batch).items():
            found.setdefault(name, []).append(each)
    return {name: moments(torch.cat(parts)) for name, parts in found.items()}


def unseen_graphs(task: str, settings: dict[str, Any], graphs: int) -> list[GraphBatch]:
    """What every model of a task is tested on, made once in a process: large graphs take longer to make than to answer.

    Processes that work side by side find what another has made in the folder SHARED.
    """
    return _unseen_graphs(task, json.dumps(settings, sort_keys=True), graphs, os.environ.get(SHARED))


@lru_cache(maxsize=32)
def _unseen_graphs(task: str, settings: str, graphs: int, shared: str | None) -> list[GraphBatch]:
    config = TrainConfig(task=task, model="any", seed=TEST_SEED, task_settings=json.loads(settings))
    if shared is None:
        return list(unseen(Problem.of(config), graphs))
    name = hashlib.sha256(repr((task, settings, graphs)).encode()).hexdigest()
    file = Path(shared) / f"{name}.pt"
    if not file.exists():
        content = io.BytesIO()
        torch.save(list(unseen(Problem.of(config), graphs)), content)
        write_atomically(file, content.getvalue())
    found: list[GraphBatch] = torch.load(file, weights_only=False)  # written by a process of this run
    return found


def shown(trained: Trained, changes: dict[str, Any]) -> dict[str, Any]:
    """A graph with its answers, nodes on a circle."""
    batch = trained.problem(changes, seed=TEST_SEED).batch(TEST, 0, 1)
    prediction, certificate = trained(batch)
    angle = torch.arange(len(batch.x)) * (2 * math.pi / max(len(batch.x), 1))
    return {
        "edges": batch.edge_index.t().tolist(),
        "predicted": prediction.flatten().tolist(),
        "true": batch.y.flatten().tolist(),
        "positions": torch.stack([angle.cos(), angle.sin()], 1).tolist(),
        "error_bound": float(certificate.bound.max()),
    }


def moments(values: Tensor) -> list[float]:
    """[mean, standard deviation], as the paper's tables have them."""
    return [float(values.mean()), float(values.std(correction=0))]
