"""IGNN (Gu et al. 2020): an implicit layer whose matrix is projected until the map contracts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from convergent.baselines.coupled import Contraction, Limits, describe, implicit, steady_state
from convergent.errors import expect
from convergent.graph import Graph
from convergent.kernels.activations import ACTIVATIONS
from convergent.nn.encoder import AttentionGN
from convergent.nn.mlp import MLP
from convergent.nn.model import GraphModel, Inputs
from convergent.operations import propagate
from convergent.solvers import Solution
from convergent.weights import degree

POWER_STEPS = 20


class IGNN(GraphModel):
    r"""The implicit graph neural network (Gu et al. 2020), a baseline of the paper:

    .. math:: X = \phi(A X W^\top + A U \Omega_1^\top + U \Omega_2^\top + b)

    The encoder computes the features U of every node and the entry of A of every edge, a number in [0, 1] divided by the degree.
    The rows of W are projected onto the 1-norm ball whose radius is kappa divided by the Perron value of A, so that the map
    contracts by kappa in the maximum norm weighted with the Perron vector of A.

    Args:
        units: number of hidden units, the size of W.
        channels: number of node features that the encoder computes.
        kappa: the contraction factor, in (0, 1).
        tol: upper bound on the error of every entry; also, relative to its size, on the steps of the adjoint.
        max_iterations: largest number of steps.
        (the others as in ``ConvergentGraphSolver``)
    """

    def __init__(
        self,
        node_features: int,
        edge_features: int,
        units: int = 64,
        channels: int = 32,
        outputs: int = 1,
        readout: str | None = None,
        layers: int = 1,
        width: int = 64,
        hidden: Sequence[int] = (64,),
        activation: str = "leaky_relu",
        aggregation: str = "sum",
        nonlinearity: str = "relu",
        kappa: float = 0.9,
        decoder: Sequence[int] = (64, 32),
        dropout: float = 0.0,
        tol: float = 1e-5,
        max_iterations: int = 300,
        flow: str = "target_to_source",
    ):
        super().__init__()
        self.remember(dict(locals()))
        expect(0 < kappa < 1, "kappa", "a number above 0 and below 1", kappa)
        expect(ACTIVATIONS[nonlinearity].lipschitz <= 1, "nonlinearity", "an activation that does not expand", nonlinearity)
        self.kappa, self.nonlinearity, self.limits = kappa, nonlinearity, Limits(tol, max_iterations)
        outside = (node_features, edge_features, channels, 1)
        self.encoder = AttentionGN(*outside, layers, width, hidden, activation, None, aggregation)
        self.weight = nn.Parameter(torch.empty(units, units))
        self.near, self.own = nn.Parameter(torch.empty(units, channels)), nn.Parameter(torch.empty(units, channels))
        self.bias = nn.Parameter(torch.empty(units, 1))
        self.decoder = MLP([units, *decoder, outputs], activation, dropout=dropout)
        self._reset_layer()

    def _reset_layer(self) -> None:
        for matrix in (self.weight, self.near, self.own):
            nn.init.xavier_uniform_(matrix)
        nn.init.zeros_(self.bias)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._reset_layer()

    def embed(self, inputs: Inputs) -> tuple[Tensor, Solution]:
        graph = inputs.graph
        features, logits = self.encoder(graph, inputs.nodes, inputs.edges)
        adjacency = degree(graph, logits, 1 - 1e-7, "clip")  # [E, 1]
        value, vector = perron(graph, adjacency.detach())
        matrix = project_rows(self.weight, self.kappa / max(value, 1e-12))
        bias = spread(graph, adjacency, features @ self.near.T) + features @ self.own.T + self.bias.T
        step = partial(self._step, graph, adjacency, matrix, bias)
        contraction = Contraction(graph, self.kappa, vector)
        x, steps = steady_state(step, torch.zeros_like(bias), self.limits, contraction)
        image = implicit(step, x, self.limits)
        return image, describe(x, image, steps, self.limits, contraction)

    def _step(self, graph: Graph, adjacency: Tensor, matrix: Tensor, bias: Tensor, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.nonlinearity].function(spread(graph, adjacency, x @ matrix.T) + bias)


def spread(graph: Graph, adjacency: Tensor, x: Tensor) -> Tensor:
    """A x, with one number per edge for all channels."""
    return propagate(graph, adjacency.expand(-1, x.shape[1]), x)


def perron(graph: Graph, adjacency: Tensor) -> tuple[float, Tensor]:
    """An upper bound on the Perron value of A >= 0 and the positive vector that proves it: A v <= value * v (Collatz, Wielandt)."""
    v = adjacency.new_ones(graph.num_nodes, 1)
    for _ in range(POWER_STEPS):
        image = propagate(graph, adjacency, v)
        v = (v + image) / (v + image).max().clamp(min=1e-30) if v.numel() else v
        v = v.clamp(min=1e-3)  # nodes that nothing leads to keep a weight
    ratios = propagate(graph, adjacency, v) / v
    return (float(ratios.max()) if v.numel() else 0.0), v


def project_rows(matrix: Tensor, radius: float | Tensor) -> Tensor:
    """The nearest matrix whose rows have absolute sums of at most ``radius`` (Duchi et al. 2008), differentiable.

    ``radius`` is one number, or one for every row, [rows, 1].
    """
    size = matrix.abs()
    order = size.sort(1, descending=True).values
    count = torch.arange(1, matrix.shape[1] + 1, device=matrix.device, dtype=matrix.dtype)
    excess = (order.cumsum(1) - radius) / count
    last = ((order > excess).sum(1, keepdim=True) - 1).clamp(min=0)
    threshold = excess.gather(1, last).clamp(min=0)
    return torch.where(size.sum(1, keepdim=True) <= radius, matrix, matrix.sign() * (size - threshold).clamp(min=0))
