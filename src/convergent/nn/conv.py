"""ConvergentConv: the fixed point as a layer, with the habits of PyTorch Geometric."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from convergent.errors import expect
from convergent.fixed_point import solve
from convergent.graph import Graph
from convergent.kernels.arguments import described, expect_matrix
from convergent.maps import ActivatedMap, LinearMap
from convergent.nn.model import column, graph_of
from convergent.nn.solver import NORMALIZATIONS, row_weights
from convergent.operations import edge_sum
from convergent.solvers import Auto, Solver

MOST = 0.9999  # that a learned gamma can reach


class ConvergentConv(nn.Module):
    r"""The implicit graph convolution of `"Convergent Graph Solvers" <https://arxiv.org/abs/2106.01680>`_:

    .. math::
        \mathbf{x}^{\prime}_i = \phi \Big( \sum_{j \in \mathcal{N}(i)} w_{ij} \, \mathbf{x}^{\prime}_j
        + \mathbf{x}_i \mathbf{\Theta}_b + \mathbf{b} \Big), \qquad
        e_{ij} = \mathbf{x}_i \mathbf{\Theta}_1 + \mathbf{x}_j \mathbf{\Theta}_2 + \mathbf{e}_{ij} \mathbf{\Theta}_e

    where the weights :math:`w_{ij}` of every head are computed from its logits :math:`e_{ij}` by a ``normalization``, so that the
    rows sum to at most :math:`\gamma < 1`. The fixed point exists and is unique, every node can depend on every other node that
    it is connected to, and the solver's tolerance is certified.

    Args:
        in_channels: size of each input sample, or -1 to take it from the first input.
        heads: number of maps that are solved side by side, which is the size of each output sample.
        edge_dim: number of edge features; None: edges have none; -1: take it from the first input.
        gamma: upper bound on the row sums; a number in (0, 1), or "learned": one per head, which starts at 0.9.
        normalization: "softmax"; "sigmoid" or "clip", both divided by the degree; or "signed", weights of either sign.
        activation: :math:`\phi`; with "identity" the map is linear, which is the fastest to solve.
        solver: the method and the tolerance; ``Auto()`` by default.
        flow: "source_to_target" as in PyG (targets sum over their incoming edges), or "target_to_source".

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, edge indices :math:`(2, E)` or a ``Graph``, edge features
          :math:`(E, D)` *(optional)*, batch :math:`(N)` *(optional)*
        - **output:** :math:`(N, heads)`; with ``return_solution=True`` also the ``Solution`` with its certificate
    """

    def __init__(
        self,
        in_channels: int,
        heads: int,
        edge_dim: int | None = None,
        gamma: float | str = 0.9,
        normalization: str = "softmax",
        activation: str = "identity",
        solver: Solver | None = None,
        flow: str = "source_to_target",
    ):
        super().__init__()
        expect(normalization in NORMALIZATIONS, "normalization", f"one of {NORMALIZATIONS}", repr(normalization))
        number = isinstance(gamma, float) and 0 < gamma < 1
        expect(number or gamma == "learned", "gamma", 'a number above 0 and below 1, or "learned"', repr(gamma))
        self.in_channels, self.heads, self.edge_dim = in_channels, heads, edge_dim
        self.normalization, self.activation, self.flow = normalization, activation, flow
        self.solver = Auto() if solver is None else solver
        self.lin_bias = _linear(in_channels, heads, bias=True)
        self.lin_row = _linear(in_channels, heads)
        self.lin_column = _linear(in_channels, heads)
        self.lin_edge = None if edge_dim is None else _linear(edge_dim, heads)
        self.gamma = float(gamma) if number else None
        self.gamma_logit = None if number else nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for layer in (self.lin_bias, self.lin_row, self.lin_column, self.lin_edge):
            if layer is not None and not isinstance(layer, nn.LazyLinear):
                layer.reset_parameters()
        if self.gamma_logit is not None:
            nn.init.constant_(self.gamma_logit, math.log(9.0))  # a sigmoid of 0.9

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Graph,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        return_solution: bool = False,
    ) -> Any:
        """The fixed points [N, heads], and where asked for the ``Solution``.

        Args:
            x: node features [N, in_channels].
            edge_index: [2, E], or a ``Graph``, which saves indexing the same edges again.
            edge_attr: edge features [E, edge_dim], or [E] for a single one.
            batch: the graph of every node, [N]; None: one graph.
            return_solution: return (fixed points, solution).
        """
        expect(isinstance(x, Tensor) and x.dim() == 2, "x", "a tensor of shape [nodes, in_channels]", described(x))
        graph = graph_of(edge_index, len(x), batch, self.flow)
        expect_matrix("x", x, graph.num_nodes, _inputs(self.lin_row, "in_channels"), graph.device)
        at_row, at_column = self.lin_row(x), self.lin_column(x)
        if self.lin_edge is not None:
            columns = _inputs(self.lin_edge, "edge_dim")
            edges = column(edge_attr)
            expect_matrix("edge_attr", edges, graph.num_edges, columns, graph.device)
            at_edge = self.lin_edge(edges)
        else:
            expect(edge_attr is None, "edge_attr", "None, as edge_dim is None", described(edge_attr))
            at_edge = at_row.new_zeros(graph.num_edges, self.heads)
        logits = edge_sum(graph, at_edge, at_row, at_column)
        weight = row_weights(graph, logits, self.normalization, self._gamma())
        bias = self.lin_bias(x)
        linear = self.activation == "identity"
        fixed = LinearMap(graph, weight, bias) if linear else ActivatedMap(graph, weight, bias, self.activation)
        solution = solve(fixed, self.solver)
        return (solution.value, solution) if return_solution else solution.value

    def _gamma(self) -> float | Tensor:
        if self.gamma is not None:
            return self.gamma
        assert self.gamma_logit is not None
        return MOST * torch.sigmoid(self.gamma_logit)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, heads={self.heads})"


def _inputs(layer: nn.Linear, word: str) -> int | str:
    """The number of columns a layer reads; one that has not seen any takes any number."""
    return layer.in_features or word


def _linear(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    return nn.LazyLinear(outputs, bias=bias) if inputs == -1 else nn.Linear(inputs, outputs, bias=bias)
