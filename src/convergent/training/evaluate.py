"""How good a trained model is, on graphs it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from convergent.errors import InputError, expect
from convergent.graph import FLOWS
from convergent.nn.model import GraphModel
from convergent.nn.scaler import ScaledModel
from convergent.solvers import Solution, Status
from convergent.tasks.batch import GraphBatch
from convergent.tasks.folder import Schema
from convergent.tasks.stream import stream_folder
from convergent.training.config import TrainConfig
from convergent.training.problem import TEST, Measures, Problem, Stored, node_errors, summary
from convergent.training.run import MODEL, load_model

AT_ONCE = 32  # graphs


@dataclass(frozen=True)
class Trained:
    """A model with what its file says about it."""

    model: GraphModel
    config: TrainConfig
    schema: Schema | None

    @staticmethod
    def load(path: Path | str, device: str = "cpu") -> Trained:
        """From a run's folder or a model file. Solves report what they could not reach instead of raising."""
        file = Path(path) / MODEL if Path(path).is_dir() else Path(path)
        model, extra = load_model(file)
        try:
            for name in ("config", "schema"):
                expect(name in extra, name, "an entry", "none")
            schema = None if extra["schema"] is None else Schema.from_json(extra["schema"])
            config = TrainConfig.from_json(extra["config"])
            _check_fit(model, schema)
        except InputError as error:
            raise InputError(f"{file}: expected a model that was trained by convergent, but got another header: {error}") from error
        return Trained(model.forgiving().to(device), config, schema)

    def problem(self, changes: dict[str, Any] | None = None, seed: int | None = None) -> Problem:
        """The task it was trained on, with some settings changed."""
        settings = {**self.config.task_settings, **(changes or {})}
        problem = Problem.of(replace(self.config, task_settings=settings, seed=self.config.seed if seed is None else seed))
        expect(problem.schema == self.schema, "task_settings", "columns and categories that the model was trained on", "others")
        return problem

    @torch.no_grad()
    def __call__(self, batch: GraphBatch) -> tuple[Tensor, Certificate]:
        """The answers, and for every graph how its fixed points were found; on the CPU."""
        device = next(self.model.parameters()).device
        moved = batch.to(device)
        answer, solution = self.model(moved.x, moved.graph, moved.edge_attr, return_solution=True)
        return answer.cpu(), Certificate.of(solution, batch.num_graphs)


def _check_fit(model: GraphModel, schema: Schema | None) -> None:
    """Whether a model reads and answers what its schema says."""
    expect(model.flow == FLOWS[0], "flow", FLOWS[0], repr(model.flow))
    if schema is None:
        return
    inner = model.model if isinstance(model, ScaledModel) else model
    widths, outputs = (model.node_features, model.edge_features), inner.settings.get("outputs")
    expect(schema.widths == widths, "schema", f"features of the widths of the model, {widths}", schema.widths)
    expect(len(schema.targets) == outputs, "schema.targets", f"{outputs} columns, as the model has answers", len(schema.targets))
    expect(model.readout is None, "readout", "None for answers at nodes", repr(model.readout))


@dataclass(frozen=True)
class Certificate:
    """Per graph: how far the fixed points may be from exact ones, the steps it took, and how it ended."""

    bound: Tensor  # [G]; zero for a model without fixed points
    steps: Tensor  # [G]
    status: Tensor  # [G] of the worst head

    @staticmethod
    def of(solution: Solution | None, graphs: int) -> Certificate:
        if solution is None:
            zeros = torch.zeros(graphs)
            return Certificate(zeros.double(), zeros.long(), zeros.to(torch.int8))
        return Certificate(solution.error_bound.amax(1).cpu(), solution.steps.cpu(), solution.status.amax(1).cpu())

    def words(self) -> list[str]:
        return [Status(int(code)).name.lower() for code in self.status]


@dataclass
class Tally:
    """What many graphs came to."""

    measures: dict[str, list[Tensor]] = field(default_factory=dict)
    graphs: int = 0
    nodes: int = 0
    most_iterations: int = 0
    worst_bound: float = 0.0
    not_converged: int = 0

    def add(self, measures: dict[str, Tensor], batch: GraphBatch, certificate: Certificate) -> None:
        for name, each in measures.items():
            self.measures.setdefault(name, []).append(each.cpu())
        self.graphs, self.nodes = self.graphs + batch.num_graphs, self.nodes + len(batch.x)
        self.not_converged += int((certificate.status != Status.CONVERGED).sum())
        if batch.num_graphs:
            self.most_iterations = max(self.most_iterations, int(certificate.steps.max()))
            self.worst_bound = max(self.worst_bound, float(certificate.bound.max()))

    @staticmethod
    def total(parts: Iterable[Tally]) -> Tally:
        """All of them together, without their measures."""
        whole = Tally()
        for part in parts:
            for name in ("graphs", "nodes", "not_converged"):
                setattr(whole, name, getattr(whole, name) + getattr(part, name))
            for name in ("most_iterations", "worst_bound"):
                setattr(whole, name, max(getattr(whole, name), getattr(part, name)))
        return whole

    def to_json(self) -> dict[str, Any]:
        joined = {name: torch.cat(parts) for name, parts in self.measures.items()}
        return {
            "graphs": self.graphs,
            "nodes": self.nodes,
            "measures": summary(joined),
            "std": {name: float(each.std(correction=0)) for name, each in joined.items()},
            "solves": {
                "not_converged": self.not_converged,
                "most_iterations": self.most_iterations,
                "worst_bound": self.worst_bound,
            },
        }


def evaluate(trained: Trained, problem: Problem, batches: Iterable[GraphBatch]) -> dict[str, Any]:
    """Measures over all graphs, mean and standard deviation, and how the solves went."""
    return _tallied(trained, problem.measure, batches)


def _tallied(trained: Trained, measure: Callable[[Tensor, GraphBatch], Measures], batches: Iterable[GraphBatch]) -> dict[str, Any]:
    tally = Tally()
    for batch in batches:
        prediction, certificate = trained(batch)
        tally.add(measure(prediction, batch), batch, certificate)
    return tally.to_json()


def unseen(problem: Problem, graphs: int) -> Iterator[GraphBatch]:
    """New graphs where the task makes them; those that were held out where it reads them."""
    if isinstance(problem, Stored):
        yield from (GraphBatch.join(part) for part in _pieces(problem.held_out(0).split()))
        return
    for number, first in enumerate(range(0, graphs, AT_ONCE)):
        yield problem.batch(TEST, number, min(AT_ONCE, graphs - first))


def _pieces(parts: list[GraphBatch]) -> Iterator[list[GraphBatch]]:
    for first in range(0, len(parts), AT_ONCE):
        yield parts[first : first + AT_ONCE]


def evaluate_folder(trained: Trained, path: Path | str) -> dict[str, Any]:
    """The same for solved networks in a folder, some at a time."""
    schema = schema_of(trained)

    def solved() -> Iterator[GraphBatch]:
        for block in stream_folder(path, schema):
            expect(block.batch.y.shape[1] > 0, str(path), f"the answers in columns {', '.join(schema.targets)} of nodes", "none")
            yield block.batch

    return _tallied(trained, node_errors, solved())


def schema_of(trained: Trained) -> Schema:
    if trained.schema is None:
        raise InputError(f"model: expected one that reads tables, but a model of {trained.config.task} does not")
    return trained.schema
