"""The problems that are timed: x = W x + b on a graph, with rows that sum to gamma, which is the contraction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from convergent import Graph, weights


@dataclass(frozen=True)
class Workload:
    """A multi-head linear system in float32, its edges sorted by row."""

    kind: str
    edge_index: Tensor  # [2, E] int64
    num_nodes: int
    batch: Tensor | None  # [N], for several graphs side by side
    weight: Tensor  # [E, H]
    bias: Tensor  # [N, H]
    gamma: float

    @property
    def row(self) -> Tensor:
        return self.edge_index[0]

    @property
    def column(self) -> Tensor:
        return self.edge_index[1]

    @property
    def num_edges(self) -> int:
        return self.edge_index.shape[1]

    @property
    def heads(self) -> int:
        return self.weight.shape[1]

    @cached_property
    def graph(self) -> Graph:
        """The structure, built once and kept with its caches, as in training."""
        return self.new_graph()

    def new_graph(self) -> Graph:
        return Graph(self.edge_index, self.num_nodes, self.batch)

    def one_head(self) -> Workload:
        return replace(self, weight=self.weight[:, :1].contiguous(), bias=self.bias[:, :1].contiguous())

    def to(self, device: str) -> Workload:
        batch = None if self.batch is None else self.batch.to(device)
        edge_index, weight, bias = (part.to(device) for part in (self.edge_index, self.weight, self.bias))
        return replace(self, edge_index=edge_index, batch=batch, weight=weight, bias=bias)

    def with_gamma(self, gamma: float) -> Workload:
        """Rows that sum to another number, on the same graph, with what is kept of it."""
        made = replace(self, weight=self.weight * (gamma / self.gamma), gamma=gamma)
        vars(made)["graph"] = self.graph
        return made

    def settings(self) -> dict[str, Any]:
        sizes = {"nodes": self.num_nodes, "edges": self.num_edges, "graphs": self.graph.num_graphs, "heads": self.heads}
        return {"kind": self.kind, **sizes, "gamma": self.gamma, "dtype": "float32"}


def random(nodes: int, edges: int, heads: int, gamma: float, seed: int, scale: float = 1.0) -> Workload:
    """Edges between any two nodes: a graph that mixes fast and has no locality."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(nodes, (2, edges), generator=generator)
    return _weighted("random", edge_index, nodes, None, heads, gamma, generator, scale)


def grid(side: int, heads: int, gamma: float, seed: int, scale: float = 1.0) -> Workload:
    """A square of side x side nodes, each joined to its four neighbours: the slow part of an error is smooth."""
    generator = torch.Generator().manual_seed(seed)
    node = torch.arange(side * side).view(side, side)
    across = torch.stack([node[:, :-1].flatten(), node[:, 1:].flatten()])
    down = torch.stack([node[:-1].flatten(), node[1:].flatten()])
    edge_index = torch.cat([across, across.flip(0), down, down.flip(0)], 1)
    return _weighted("grid", edge_index, side * side, None, heads, gamma, generator, scale)


def decision_processes(graphs: int, heads: int, gamma: float, seed: int, sizes: tuple[int, int] = (20, 50)) -> Workload:
    """The paper's training batch: graphs of 20 to 50 states, all states of one with 5 to 10 distinct successors."""
    generator = torch.Generator().manual_seed(seed)
    smallest, largest = sizes
    states = torch.randint(smallest, largest + 1, (graphs,), generator=generator).tolist()
    actions = torch.randint(5, 11, (graphs,), generator=generator).tolist()
    parts, first = [], 0
    for size, degree in zip(states, actions, strict=True):
        successors = torch.rand(size, size, generator=generator).argsort(1)[:, :degree]  # [size, degree], distinct
        origins = torch.arange(size).repeat_interleave(degree)
        parts.append(torch.stack([origins, successors.flatten()]) + first)
        first += size
    batch = torch.arange(graphs).repeat_interleave(torch.tensor(states))
    return _weighted("decision processes", torch.cat(parts, 1), first, batch, heads, gamma, generator, 1.0)


def _weighted(
    kind: str,
    edge_index: Tensor,
    nodes: int,
    batch: Tensor | None,
    heads: int,
    gamma: float,
    generator: torch.Generator,
    scale: float,
) -> Workload:
    edge_index = edge_index[:, torch.argsort(edge_index[0], stable=True)].contiguous()
    graph = Graph(edge_index, nodes, batch)
    weight = weights.softmax(graph, torch.randn(edge_index.shape[1], heads, generator=generator), gamma)
    bias = scale * torch.randn(nodes, heads, generator=generator)
    return Workload(kind, edge_index, nodes, batch, weight, bias, gamma)
