"""Features as they come, in whatever units, to numbers a network can see; the scaling is part of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from convergent.errors import expect
from convergent.graph import Graph
from convergent.kernels.arguments import expect_matrix
from convergent.nn.model import GraphModel, Inputs, pool
from convergent.solvers import Solution


class Scaler(nn.Module):
    """Standardises columns: minus their mean, divided by their standard deviation.

    Args:
        columns: number of columns.
        logs: columns whose logarithm is added as a further column, for sizes that range over orders of magnitude.
    """

    mean: Tensor
    std: Tensor
    least: Tensor
    places: Tensor  # of the logarithms; on the device, where a list would have to be copied in every call

    def __init__(self, columns: int, logs: Sequence[int] = ()):
        super().__init__()
        expect(all(0 <= column < columns for column in logs), "logs", f"columns from 0 to {columns} - 1", list(logs))
        self.columns, self.logs = columns, list(logs)
        self.width = columns + len(self.logs)
        self.register_buffer("places", torch.tensor(self.logs, dtype=torch.long), persistent=False)
        self.register_buffer("mean", torch.zeros(self.width))
        self.register_buffer("std", torch.ones(self.width))
        self.register_buffer("least", torch.full((len(self.logs),), 1e-30))  # what a logarithm is taken of at the least

    def fit(self, values: Tensor) -> Scaler:
        """Take the mean and the standard deviation of these rows; a constant column is not scaled."""
        expect_matrix("values", values, "rows", self.columns, self.mean.device)
        if len(values) == 0:
            return self
        if self.logs:
            positive = values[:, self.logs].double()
            smallest = torch.where(positive > 0, positive, torch.inf).amin(0)
            self.least = torch.where(torch.isfinite(smallest), smallest, 1.0).to(self.least.dtype)
        wide = self._widened(values).double()
        std = wide.std(0, correction=0)
        self.mean = wide.mean(0).to(self.mean.dtype)
        self.std = torch.where(std > 1e-12 * wide.abs().amax(0), std, 1.0).to(self.std.dtype)
        return self

    def _widened(self, values: Tensor) -> Tensor:
        if not self.logs:
            return values
        sizes = values.index_select(1, self.places)
        return torch.cat([values, torch.maximum(sizes, self.least.to(values.dtype)).log()], 1)

    def forward(self, values: Tensor) -> Tensor:
        expect_matrix("values", values, "rows", self.columns, self.mean.device)
        return (self._widened(values) - self.mean) / self.std

    def inverse(self, scaled: Tensor) -> Tensor:
        """The inverse, for columns without logarithms."""
        expect_matrix("scaled", scaled, "rows", self.width, self.mean.device)
        return scaled * self.std + self.mean

    def reset_parameters(self) -> None:
        """It has none: what it knows of the data stays."""


class ScaledModel(GraphModel):
    """A model with scalers for its inputs and, unless the answers are classes, for its outputs.

    Args:
        kind, settings: name of the class and settings of the inner model; the numbers of features are set here.
        node_features, edge_features: number of features in the data.
        node_logs, edge_logs: columns whose logarithm is added.
        scale_answers: the answers are numbers with units, not scores of classes.
        readout, flow: of the inner model.
    """

    def __init__(
        self,
        kind: str,
        settings: dict[str, Any],
        node_features: int,
        edge_features: int,
        node_logs: Sequence[int] = (),
        edge_logs: Sequence[int] = (),
        scale_answers: bool = True,
        readout: str | None = None,
        flow: str = "target_to_source",
    ):
        super().__init__()
        self.remember(dict(locals()))
        self.nodes, self.edges = Scaler(node_features, node_logs), Scaler(edge_features, edge_logs)
        inner = {"node_features": self.nodes.width, "edge_features": self.edges.width, "readout": readout, "flow": flow}
        for name in settings:
            expect(name not in inner, "settings", f"none of {', '.join(inner)}, which follow from the data", repr(name))
        expect(kind != type(self).__name__, "kind", "a model without scalers", repr(kind))
        self.model = GraphModel.rebuild(kind, {**inner, **settings})
        self.answers = Scaler(self.model.settings["outputs"]) if scale_answers else None

    def fit(self, x: Tensor, edge_attr: Tensor, y: Tensor) -> ScaledModel:
        """Take the scales from the features and answers of a training set."""
        self.nodes.fit(x)
        self.edges.fit(edge_attr)
        if self.answers is not None:
            self.answers.fit(y)
        return self

    def embed(self, inputs: Inputs) -> tuple[Tensor, Solution | None]:
        return self.model.embed(Inputs(inputs.graph, self.nodes(inputs.nodes), self.edges(inputs.edges)))

    def decode(self, graph: Graph, hidden: Tensor) -> Tensor:
        answer = self.model.decoder(hidden if self.readout is None else pool(graph, hidden, self.readout))
        return answer if self.answers is None else self.answers.inverse(answer)
