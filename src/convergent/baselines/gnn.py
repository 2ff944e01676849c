"""GNN(n): n layers of the encoder and a decoder, no fixed point."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from convergent.nn.encoder import AttentionGN
from convergent.nn.mlp import MLP
from convergent.nn.model import GraphModel, Inputs


class GNN(GraphModel):
    """Graph network layers and a decoder, without a fixed point: an answer depends on nodes at most ``layers`` edges away.

    Args:
        layers: number of layers.
        (the others as in ``ConvergentGraphSolver``)
    """

    def __init__(
        self,
        node_features: int,
        edge_features: int,
        outputs: int = 1,
        readout: str | None = None,
        layers: int = 1,
        width: int = 64,
        hidden: Sequence[int] = (64,),
        activation: str = "leaky_relu",
        aggregation: str = "sum",
        decoder: Sequence[int] = (64, 32),
        dropout: float = 0.0,
        flow: str = "target_to_source",
    ):
        super().__init__()
        self.remember(dict(locals()))
        outside = (node_features, edge_features, width, width)
        self.encoder = AttentionGN(*outside, layers, width, hidden, activation, None, aggregation)
        self.decoder = MLP([width, *decoder, outputs], activation, dropout=dropout)

    def embed(self, inputs: Inputs) -> tuple[Tensor, None]:
        nodes, _ = self.encoder(inputs.graph, inputs.nodes, inputs.edges)
        return nodes, None
