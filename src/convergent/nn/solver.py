"""The convergent graph solver of the paper: encoder, weights, map, fixed point, decoder."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from convergent import weights
from convergent.errors import expect
from convergent.fixed_point import solve
from convergent.graph import Graph
from convergent.maps import ActivatedMap, LinearMap
from convergent.nn.encoder import AttentionGN
from convergent.nn.mlp import MLP
from convergent.nn.model import GraphModel, Inputs
from convergent.solvers import Auto, Solution, Solver

NORMALIZATIONS = ("clip", "sigmoid", "softmax", "signed")


class ConvergentGraphSolver(GraphModel):
    r"""The model of the paper, CGS(H).

    An encoder computes a logit for every edge and a bias b for every node, for each of H heads; then

    .. math:: x^\ast = \phi(\gamma A x^\ast + b), \qquad \hat y = g(x^\ast)

    where the rows of A sum to at most one, so that the fixed point exists and is unique, and g is a decoder.

    Args:
        node_features, edge_features: number of features of a node and of an edge.
        heads: number of maps H that are solved side by side.
        outputs: number of outputs per node or graph.
        readout: None for an answer per node; "sum", "mean" or "max" over the fixed points of a graph for an answer per graph.
        layers, width, hidden, activation, aggregation: of the encoder (``AttentionGN``).
        last: activation of the encoder's outputs; None: ``activation``, as in the paper.
        normalization: from logits to weights: "clip" or "sigmoid" over the degree (eq. 8 of the paper), "softmax" or "signed".
        gamma: upper bound on the row sums, in (0, 1).
        nonlinearity: :math:`\phi`; "identity" is the paper's CGS, another activation its nl-CGS.
        fixed_bias: one learned bias per head instead of the encoder's (an ablation of the paper).
        decoder: sizes of the hidden layers of g.
        dropout: probability of dropout in the decoder.
        solver: the method and the tolerance; ``Auto()`` by default.
        flow: the end of an edge that sums; in the paper the source does.
    """

    def __init__(
        self,
        node_features: int,
        edge_features: int,
        heads: int = 16,
        outputs: int = 1,
        readout: str | None = None,
        layers: int = 1,
        width: int = 64,
        hidden: Sequence[int] = (64,),
        activation: str = "leaky_relu",
        aggregation: str = "sum",
        last: str | None = None,
        normalization: str = "clip",
        gamma: float = 0.5,
        nonlinearity: str = "identity",
        fixed_bias: bool = False,
        decoder: Sequence[int] = (64, 32),
        dropout: float = 0.0,
        solver: Solver | None = None,
        flow: str = "target_to_source",
    ):
        solver = Auto() if solver is None else solver
        super().__init__()
        self.remember(dict(locals()))
        expect(heads >= 1, "heads", "1 or more", heads)
        expect(normalization in NORMALIZATIONS, "normalization", f"one of {NORMALIZATIONS}", repr(normalization))
        expect(0 < gamma < 1, "gamma", "a number above 0 and below 1", gamma)
        self.heads, self.normalization, self.gamma, self.nonlinearity = heads, normalization, gamma, nonlinearity
        self.solver = solver
        outside = (node_features, edge_features, heads, heads)
        self.encoder = AttentionGN(*outside, layers, width, hidden, activation, last, aggregation)
        self.bias = nn.Parameter(torch.zeros(heads)) if fixed_bias else None
        self.decoder = MLP([heads, *decoder, outputs], activation, dropout=dropout)

    def embed(self, inputs: Inputs) -> tuple[Tensor, Solution]:
        solution = solve(self.map(inputs), self.solver)
        return solution.value.to(inputs.nodes.dtype), solution

    def map(self, inputs: Inputs) -> LinearMap | ActivatedMap:
        """The contracting map that the encoder builds from a graph and its features."""
        graph = inputs.graph
        bias, logits = self.encoder(graph, inputs.nodes, inputs.edges)
        if self.bias is not None:
            bias = self.bias.expand_as(bias)
        weight = row_weights(graph, logits, self.normalization, self.gamma)
        if self.nonlinearity == "identity":
            return LinearMap(graph, weight, bias)
        return ActivatedMap(graph, weight, bias, self.nonlinearity)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.bias is not None:
            nn.init.zeros_(self.bias)


def row_weights(graph: Graph, logits: Tensor, normalization: str, gamma: float | Tensor) -> Tensor:
    """Logits [E, H] to weights whose rows sum to at most gamma, by name."""
    if normalization == "softmax":
        return weights.softmax(graph, logits, gamma)
    if normalization == "signed":
        return weights.signed(graph, logits, gamma)
    return weights.degree(graph, logits, gamma, normalization)
