"""Graph classifiers that others proposed, from PyG's own layers: GIN, GIN with GraphNorm, and DGCNN.

They are made for ``folds``: copies side by side, each with its own weights and its own statistics.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from convergent.experiments.folds import Linears, repeated
from convergent.nn.model import pool
from convergent.tasks.batch import GraphBatch


class BatchNorms(nn.Module):
    """Batch normalization of every copy, over its nodes without the padding."""

    def __init__(self, channels: int, copies: int, momentum: float = 0.1, eps: float = 1e-5):
        super().__init__()
        self.copies, self.momentum, self.eps = copies, momentum, eps
        self.weight, self.bias = repeated(torch.ones(1, channels), copies), repeated(torch.zeros(1, channels), copies)
        self.mean: Tensor
        self.variance: Tensor
        self.register_buffer("mean", torch.zeros(copies, 1, channels))
        self.register_buffer("variance", torch.ones(copies, 1, channels))

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        x = x.view(self.copies, -1, x.shape[1])  # [copies, nodes, channels]
        mean, variance = self._moments(x, batch) if self.training else (self.mean, self.variance)
        return ((x - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias).flatten(0, 1)

    def _moments(self, x: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        assert batch.weight is not None
        real = batch.weight.view(self.copies, -1, 1)
        count = real.sum(1, keepdim=True)
        mean = (x * real).sum(1, keepdim=True) / count
        variance = ((x - mean).square() * real).sum(1, keepdim=True) / count
        with torch.no_grad():
            self.mean.lerp_(mean, self.momentum)
            self.variance.lerp_(variance * count / (count - 1).clamp(min=1), self.momentum)  # without bias, as torch keeps it
        return mean, variance


class GraphNorms(nn.Module):
    """PyG's ``GraphNorm``: its weights, which it multiplies with rows, are handed to it row by row."""

    def __init__(self, channels: int, copies: int):
        from torch_geometric.nn import GraphNorm

        super().__init__()
        one = GraphNorm(channels)
        self.layers = [one.requires_grad_(False)]  # in a list: its own weights are not the model's
        self.weights = nn.ParameterDict({name: repeated(value.unsqueeze(0), copies) for name, value in one.named_parameters()})

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        rows = {name: value.expand(-1, len(x) // len(value), -1).flatten(0, 1) for name, value in self.weights.items()}
        return torch.func.functional_call(self.layers[0], rows, (x, batch.batch, batch.num_graphs))


NORMS = {"batch": BatchNorms, "graph": GraphNorms}


class GIN(nn.Module):
    """GIN-0 (Xu et al. 2019): in every layer a sum over neighbours and an MLP; every layer's sum over nodes votes on the class.

    Args:
        features, classes: of nodes, and to choose from.
        copies: models side by side.
        norm: "batch", or "graph" for that of Cai et al. 2021.
        layers, width: of the network.
        dropout: of the votes.
    """

    def __init__(
        self, features: int, classes: int, copies: int, norm: str = "batch", layers: int = 4, width: int = 64, dropout: float = 0.5
    ):
        from torch_geometric.nn import GINConv

        super().__init__()
        widths = [features, *[width] * layers]
        self.convs = nn.ModuleList(GINConv(nn.Identity()) for _ in range(layers))
        self.first = nn.ModuleList(Linears(nn.Linear(size, width), copies) for size in widths[:-1])
        self.second = nn.ModuleList(Linears(nn.Linear(width, width), copies) for _ in range(layers))
        self.inner, self.outer = (nn.ModuleList(NORMS[norm](width, copies) for _ in range(layers)) for _ in range(2))
        self.votes = nn.ModuleList(Linears(nn.Linear(size, classes), copies) for size in widths)
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: GraphBatch) -> Tensor:
        x = batch.x
        total = self.vote(0, x, batch)
        parts = zip(self.convs, self.first, self.inner, self.second, self.outer, strict=True)
        for number, (conv, first, inner, second, outer) in enumerate(parts, 1):
            x = torch.relu(inner(first(conv(x, batch.edge_index)), batch))
            x = torch.relu(outer(second(x), batch))
            total = total + self.vote(number, x, batch)
        return total

    def vote(self, number: int, x: Tensor, batch: GraphBatch) -> Tensor:
        return self.dropout(self.votes[number](pool(batch.graph, x, "sum")))


class DGCNN(nn.Module):
    """DGCNN (Zhang et al. 2018): graph convolutions, then the ``kept`` nodes of the largest last channel in that order, a signal.

    Convolutions along that signal are linear layers on its windows.

    Args:
        features, classes, copies: as in ``GIN``.
        kept: nodes of every graph that go on.
        largest: the number of nodes of the largest graph.
        width: of the graph convolutions, of which there are three, and a fourth to a single channel.
        dropout: before the last layer.
    """

    def __init__(self, features: int, classes: int, copies: int, kept: int, largest: int, width: int = 32, dropout: float = 0.5):
        from torch_geometric.nn import SimpleConv, SortAggregation

        super().__init__()
        widths = [features, width, width, width, 1]
        self.mean = SimpleConv(aggr="mean", combine_root="self_loop")  # D^-1 (A + I) of the paper
        self.convs = nn.ModuleList(Linears(nn.Linear(*ends), copies) for ends in pairwise(widths))
        self.sort, self.kept, self.largest = SortAggregation(kept), kept, largest
        self.node = Linears(nn.Linear(sum(widths[1:]), 16), copies)
        self.window = Linears(nn.Linear(16 * WINDOW, 32), copies)
        self.dense = Linears(nn.Linear(32 * (kept // 2 - WINDOW + 1), 128), copies)
        self.last = Linears(nn.Linear(128, classes), copies)
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: GraphBatch) -> Tensor:
        x, layers = batch.x, []
        for conv in self.convs:
            x = torch.tanh(self.mean(conv(x), batch.edge_index))
            layers.append(x)
        x = self.sort(torch.cat(layers, 1), batch.batch, dim_size=batch.num_graphs, max_num_elements=self.largest)
        x = torch.relu(self.node(x.view(batch.num_graphs * self.kept, -1)))
        x = nn.functional.max_pool1d(x.view(batch.num_graphs, self.kept, 16).transpose(1, 2), 2)  # [graphs, 16, kept / 2]
        x = x.unfold(2, WINDOW, 1).transpose(1, 2).flatten(2)  # [graphs, windows, 16 * WINDOW]
        x = torch.relu(self.window(x.flatten(0, 1))).view(batch.num_graphs, -1)
        return self.last(self.dropout(torch.relu(self.dense(x))))


WINDOW = 5  # places of the signal that the second convolution of DGCNN sees
LEAST_KEPT = 10


def kept_nodes(sizes: list[int]) -> int:
    """As many nodes as 60 % of the graphs have, and ten at least: the choice of its authors."""
    return max(LEAST_KEPT, sorted(sizes)[int(0.4 * len(sizes))])


def build(name: str, features: int, classes: int, copies: int, sizes: list[int]) -> nn.Module:
    """A classifier by name for graphs of these numbers of nodes."""
    kinds: dict[str, Any] = {
        "GIN": lambda: GIN(features, classes, copies),
        "GraphNorm": lambda: GIN(features, classes, copies, norm="graph"),
        "DGCNN": lambda: DGCNN(features, classes, copies, kept_nodes(sizes), max(sizes)),
    }
    return kinds[name]()


NAMES = ("GIN", "GraphNorm", "DGCNN")
