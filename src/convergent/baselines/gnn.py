"""GNN(n): n layers of the encoder and a decoder, no fixed point."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from convergent.nn.encoder import AttentionGN
from convergent.nn.mlp import MLP
from convergent.nn.model import GraphModel, Inputs


class GNN(GraphModel):
    """A stack of ``layers`` graph network layers; the arguments are those of ``ConvergentGraphSolver``.

    It sees no further than ``layers`` edges.
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
