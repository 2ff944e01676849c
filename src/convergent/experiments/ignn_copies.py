"""IGNN for ``folds``: the implicit layers of several copies side by side."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from convergent.baselines.coupled import Contraction, implicit, steady_state
from convergent.baselines.ignn import IGNN, perron, project_rows, spread
from convergent.experiments.folds import Linears, repeated, side_by_side
from convergent.graph import Graph
from convergent.kernels.activations import ACTIVATIONS
from convergent.nn.model import pool
from convergent.operations import propagate
from convergent.tasks.batch import GraphBatch
from convergent.weights import degree


class IGNNCopies(nn.Module):
    """Copies of an untrained IGNN with a readout. Each has a matrix of its own, bounded by the Perron value of its own graphs."""

    def __init__(self, one: IGNN, copies: int):
        super().__init__()
        assert one.readout is not None
        self.copies, self.readout = copies, one.readout
        self.kappa, self.limits, self.function = one.kappa, one.limits, ACTIVATIONS[one.nonlinearity].function
        self.encoder, self.decoder = side_by_side(one.encoder, copies), side_by_side(one.decoder, copies)
        self.matrix = repeated(one.weight, copies)
        self.near, self.own = (Linears(_linear(*parts), copies) for parts in ((one.near, None), (one.own, one.bias)))

    def forward(self, batch: GraphBatch) -> Tensor:
        graph = batch.graph
        assert batch.weight is not None
        features, logits = self.encoder(graph, batch.x, batch.edge_attr)
        # [E, 1]; without the padding, which has no part in how far a matrix may go
        adjacency = degree(graph, logits, 1 - 1e-7, "clip") * batch.weight[graph.row]
        matrix, vector = self.contracting(graph, adjacency.detach())
        bias = spread(graph, adjacency, self.near(features)) + self.own(features)

        def step(x: Tensor) -> Tensor:
            mixed = x.view(self.copies, -1, x.shape[1]) @ matrix.mT  # [copies, nodes, units]
            return self.function(spread(graph, adjacency, mixed.flatten(0, 1)) + bias)

        x, _ = steady_state(step, torch.zeros_like(bias), self.limits, Contraction(graph, self.kappa, vector))
        return self.decoder(pool(graph, implicit(step, x, self.limits), self.readout))

    def contracting(self, graph: Graph, adjacency: Tensor) -> tuple[Tensor, Tensor]:
        """Every copy's matrix with its rows projected, [copies, units, units], and the Perron vectors, [nodes, 1]."""
        _, vector = perron(graph, adjacency)
        values = (propagate(graph, adjacency, vector) / vector).view(self.copies, -1).amax(1)
        radius = (self.kappa / values.clamp(min=1e-12)).repeat_interleave(self.matrix.shape[1]).unsqueeze(1)
        return project_rows(self.matrix.flatten(0, 1), radius).view_as(self.matrix), vector


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if bias is not None:
            layer.bias.copy_(bias.squeeze(1))
    return layer
