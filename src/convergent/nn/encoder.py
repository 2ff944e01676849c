"""The encoder of the paper: an attention variant of the graph network (Battaglia et al. 2018).

For every edge e: i -> j, where i is the node that aggregates,

    e'  = edge MLP [e, v_i, v_j]
    a   = softmax over the edges of i of the attention MLP [e, v_i, v_j]
    v_i = node MLP [sum (or mean) of a e', v_i]
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from convergent import weights
from convergent.errors import expect
from convergent.graph import Graph
from convergent.kernels.arguments import expect_matrix
from convergent.nn.mlp import MLP
from convergent.operations import edge_sum, sum_edges

AGGREGATIONS = ("sum", "mean")


class GNLayer(nn.Module):
    r"""One layer of a graph network with attention, for every edge :math:`i \to j`:

    .. math::
        e'_{ij} = \operatorname{MLP}_e [e_{ij}, v_i, v_j], \qquad
        a_{ij} = \operatorname{softmax}_j \operatorname{MLP}_a [e_{ij}, v_i, v_j], \qquad
        v'_i = \operatorname{MLP}_v \Big[ \sum_j a_{ij} e'_{ij}, v_i \Big]

    It maps features [N, nodes] and [E, edges] to [N, node_outputs] and [E, edge_outputs].

    Args:
        nodes, edges: number of input features.
        node_outputs, edge_outputs: number of output features.
        hidden: sizes of the hidden layers of the three MLPs.
        activation: of the hidden layers.
        last: activation of the outputs of the edge and the node MLP; None: ``activation``.
        aggregation: "sum" over a node's weighted edges, or "mean".
    """

    def __init__(
        self,
        nodes: int,
        edges: int,
        node_outputs: int,
        edge_outputs: int,
        hidden: Sequence[int] = (64,),
        activation: str = "leaky_relu",
        last: str | None = None,
        aggregation: str = "sum",
    ):
        super().__init__()
        expect(aggregation in AGGREGATIONS, "aggregation", f"one of {AGGREGATIONS}", repr(aggregation))
        ends, last = edges + 2 * nodes, activation if last is None else last
        self.aggregation, self.nodes, self.edges = aggregation, nodes, edges
        self.edge = MLP([ends, *hidden, edge_outputs], activation, last)
        self.attention = MLP([ends, *hidden, 1], activation)
        self.node = MLP([edge_outputs + nodes, *hidden, node_outputs], activation, last)

    def forward(self, graph: Graph, nodes: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        expect_matrix("nodes", nodes, graph.num_nodes, self.nodes, graph.device)
        expect_matrix("edges", edges, graph.num_edges, self.edges, graph.device)
        attention = weights.row_softmax(graph, self.at_edges(self.attention, graph, nodes, edges))
        edges = self.at_edges(self.edge, graph, nodes, edges)
        gathered = sum_edges(graph, attention * edges)
        if self.aggregation == "mean":
            gathered = gathered / graph.out_degree.clamp(min=1).unsqueeze(1).to(gathered.dtype)
        return self.node(torch.cat([gathered, nodes], 1)), edges

    def at_edges(self, mlp: MLP, graph: Graph, nodes: Tensor, edges: Tensor) -> Tensor:
        """The MLP of [e, v_i, v_j]. What its first layer makes of a node is computed once, not for each of the node's edges."""
        begin = edges.shape[1]
        own, other = mlp.part(nodes, begin), mlp.part(nodes, begin + nodes.shape[1], bias=True)
        return mlp.rest(edge_sum(graph, mlp.part(edges, 0), own, other))

    def reset_parameters(self) -> None:
        for part in (self.edge, self.attention, self.node):
            part.reset_parameters()


class AttentionGN(nn.Module):
    """A stack of ``GNLayer``, the encoder of the paper.

    Args:
        nodes, edges: number of input features.
        node_outputs, edge_outputs: number of output features.
        layers: number of layers.
        width: number of features of nodes and edges between two layers.
        hidden, activation, aggregation: of every layer.
        last: activation of the outputs of the last layer; None: ``activation``, as in the paper.
    """

    def __init__(
        self,
        nodes: int,
        edges: int,
        node_outputs: int,
        edge_outputs: int,
        layers: int = 1,
        width: int = 64,
        hidden: Sequence[int] = (64,),
        activation: str = "leaky_relu",
        last: str | None = None,
        aggregation: str = "sum",
    ):
        super().__init__()
        expect(layers >= 1, "layers", "1 or more", layers)
        inner = [width] * (layers - 1)
        node_sizes, edge_sizes = [nodes, *inner, node_outputs], [edges, *inner, edge_outputs]
        self.layers = nn.ModuleList(
            GNLayer(*sizes, hidden, activation, last if index == layers - 1 else None, aggregation)
            for index, sizes in enumerate(zip(node_sizes, edge_sizes, node_sizes[1:], edge_sizes[1:], strict=False))
        )

    def forward(self, graph: Graph, nodes: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        for layer in self.layers:
            nodes, edges = layer(graph, nodes, edges)
        return nodes, edges

    def reset_parameters(self) -> None:
        for layer in self.layers:
            assert isinstance(layer, GNLayer)
            layer.reset_parameters()
