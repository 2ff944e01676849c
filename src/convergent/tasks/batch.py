"""A batch of graphs with features and answers: what tasks make and training reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from convergent.errors import expect
from convergent.graph import Graph


@dataclass(frozen=True)
class GraphBatch:
    """Graphs side by side.

    Attributes:
        x: node features [N, F].
        edge_index: [2, E]; an edge i -> j means that node i depends on node j.
        edge_attr: edge features [E, D].
        y: answers, per node [N, T] or per graph [G, T] (classes: [G] integers).
        batch: the graph of every node [N], never decreasing.
        num_graphs: how many, those without nodes included.
    """

    x: Tensor
    edge_index: Tensor
    edge_attr: Tensor
    y: Tensor
    batch: Tensor
    num_graphs: int

    @cached_property
    def graph(self) -> Graph:
        """The structure, indexed once."""
        return Graph(self.edge_index, len(self.x), batch=self.batch)

    @property
    def sizes(self) -> Tensor:
        """Nodes of every graph, [G]."""
        return torch.bincount(self.batch, minlength=self.num_graphs)

    def to(self, device: torch.device | str) -> GraphBatch:
        moved = {field.name: _moved(getattr(self, field.name), device) for field in fields(self)}
        return GraphBatch(**moved)

    def split(self) -> list[GraphBatch]:
        """The graphs one by one."""
        nodes = self.sizes.tolist()
        edges = torch.bincount(self.batch[self.edge_index[0]], minlength=self.num_graphs).tolist()
        order = torch.argsort(self.batch[self.edge_index[0]], stable=True)
        index, attributes = self.edge_index[:, order].split(edges, 1), self.edge_attr[order].split(edges)
        per_node = len(self.y) == len(self.x)
        answers = self.y.split(nodes) if per_node else self.y.split(1)
        start, parts = 0, []
        for number, x in enumerate(self.x.split(nodes)):
            zeros = self.batch.new_zeros(len(x))
            parts.append(GraphBatch(x, index[number] - start, attributes[number], answers[number], zeros, 1))
            start += len(x)
        return parts

    @staticmethod
    def join(parts: Sequence[GraphBatch]) -> GraphBatch:
        """Batches one after the other, as one."""
        expect(len(parts) > 0, "parts", "one batch or more", 0)
        first_node, first_graph, index, batch = 0, 0, [], []
        for part in parts:
            index.append(part.edge_index + first_node)
            batch.append(part.batch + first_graph)
            first_node, first_graph = first_node + len(part.x), first_graph + part.num_graphs
        joined = (torch.cat([getattr(part, name) for part in parts]) for name in ("x", "edge_attr", "y"))
        x, edge_attr, y = joined
        return GraphBatch(x, torch.cat(index, 1), edge_attr, y, torch.cat(batch), first_graph)

    @staticmethod
    def from_pyg(items: Sequence[Any]) -> GraphBatch:
        """From PyG ``Data``: x, edge_index, y, and edge_attr where there is one (otherwise ones)."""
        return GraphBatch.join([_from_data(item, number) for number, item in enumerate(items)])

    def to_pyg(self) -> list[Any]:
        """One PyG ``Data`` per graph."""
        from torch_geometric.data import Data

        return [Data(x=part.x, edge_index=part.edge_index, edge_attr=part.edge_attr, y=part.y) for part in self.split()]


def _moved(value: Any, device: torch.device | str) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value


def _columns(value: Tensor) -> Tensor:
    return value.unsqueeze(1) if value.dim() == 1 else value


def _from_data(data: Any, number: int) -> GraphBatch:
    for name in ("x", "edge_index", "y"):
        expect(getattr(data, name, None) is not None, f"data[{number}]", f"an attribute {name}", "none")
    x, edges = _columns(data.x).float(), data.edge_index.shape[1]
    edge_attr = getattr(data, "edge_attr", None)
    attributes = x.new_ones(edges, 1) if edge_attr is None else _columns(edge_attr).float()
    y = data.y if data.y.dim() > 0 else data.y.unsqueeze(0)
    y = y if not y.is_floating_point() else _columns(y).float()
    return GraphBatch(x, data.edge_index, attributes, y, torch.zeros(len(x), dtype=torch.long), 1)
