"""SSE (Dai et al. 2018): a damped iteration to a steady state, here with edge features."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from convergent.baselines.coupled import Contraction, Limits, describe, steady_state
from convergent.errors import expect
from convergent.nn.encoder import AGGREGATIONS
from convergent.nn.mlp import MLP
from convergent.nn.model import GraphModel, Inputs
from convergent.operations import propagate, sum_edges
from convergent.solvers import Solution


class SSE(GraphModel):
    r"""Stochastic steady-state embedding (Dai et al. 2018), a baseline of the paper. For every node i with neighbours j

    .. math::
        h_i \leftarrow (1 - \alpha)\, h_i
        + \alpha W_2 \operatorname{relu} \Big( W_1 \Big[ v_i, \sum_j (h_j, v_j, e_{ij}) \Big] \Big)

    is iterated until it changes by no more than ``tol``. The original map need not contract, and trained ones often do not: nothing
    bounds its error, and its status is STEADY where it has stopped changing, never CONVERGED. With ``gain`` it contracts by that
    factor in the largest Euclidean norm of a node: the part of :math:`W_1` that reads h is scaled down where its spectral norm
    and that of :math:`W_2` require it. It is then iterated until the error bound is within ``tol``. The gradient is that of the
    last step, as in the original.

    Args:
        units: the size of h.
        damping: :math:`\alpha`. If the map contracts, this changes only the number of steps.
        gain: the contraction factor, for means over the neighbours; None: the original map.
        aggregation: "mean" over the neighbours, or "sum", which may diverge on graphs of higher degree.
        tol: upper bound on the error of every entry with ``gain``, largest entry of the last step without.
        max_iterations: largest number of steps.
        (the others as in ``ConvergentGraphSolver``)
    """

    def __init__(
        self,
        node_features: int,
        edge_features: int,
        units: int = 128,
        outputs: int = 1,
        readout: str | None = None,
        damping: float = 0.1,
        gain: float | None = None,
        aggregation: str = "mean",
        activation: str = "leaky_relu",
        decoder: Sequence[int] = (64, 32),
        dropout: float = 0.0,
        tol: float = 1e-4,
        max_iterations: int = 200,
        flow: str = "target_to_source",
    ):
        super().__init__()
        self.remember(dict(locals()))
        expect(0 < damping <= 1, "damping", "a number above 0, at most 1", damping)
        expect(aggregation in AGGREGATIONS, "aggregation", f"one of {AGGREGATIONS}", repr(aggregation))
        expect(gain is None or 0 < gain < 1, "gain", "None or a number between 0 and 1", gain)
        expect(gain is None or aggregation == "mean", "aggregation", "'mean', which a gain needs", repr(aggregation))
        self.damping, self.gain, self.aggregation, self.units = damping, gain, aggregation, units
        self.limits = Limits(tol, max_iterations)
        self.first = nn.Linear(units + 2 * node_features + edge_features, units, bias=False)
        self.second = nn.Linear(units, units, bias=False)
        self.decoder = MLP([units, *decoder, outputs], activation, dropout=dropout)

    def embed(self, inputs: Inputs) -> tuple[Tensor, Solution]:
        graph, nodes, edges = inputs
        degree = graph.out_degree.clamp(min=1).unsqueeze(1).to(nodes.dtype)
        scale = 1 / degree if self.aggregation == "mean" else torch.ones_like(degree)
        around = torch.cat([sum_edges(graph, nodes.index_select(0, graph.column)), sum_edges(graph, edges)], 1) * scale
        ones = nodes.new_ones(graph.num_edges, self.units)

        first = self.contracting(nodes.shape[1])

        def step(h: Tensor) -> Tensor:
            gathered = torch.cat([nodes, propagate(graph, ones, h) * scale, around], 1)
            return (1 - self.damping) * h + self.damping * self.second(torch.relu(gathered @ first.t()))

        factor = 1.0 if self.gain is None else 1 - self.damping * (1 - self.gain)
        contraction = Contraction(graph, factor, nodes.new_ones(graph.num_nodes, 1), euclidean=True)
        h, steps = steady_state(step, nodes.new_zeros(graph.num_nodes, self.units), self.limits, contraction)
        image = step(h)
        return image, describe(h, image, steps, self.limits, contraction)

    def contracting(self, features: int) -> Tensor:
        """W_1, with the columns that read h scaled down where they have to be."""
        if self.gain is None:
            return self.first.weight
        own, state, around = self.first.weight.split([features, self.units, self.first.in_features - features - self.units], 1)
        with torch.no_grad():
            slope = torch.linalg.matrix_norm(state, 2) * torch.linalg.matrix_norm(self.second.weight, 2)
            down = (self.gain / slope.clamp(min=1e-30)).clamp(max=1.0)
        return torch.cat([own, down * state, around], 1)
