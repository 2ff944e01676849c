"""A batch of graphs with features and answers: what tasks make and training reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from convergent.errors import expect
from convergent.graph import Graph, overwrite

MOST_NUMBERS = 2**31  # that a task makes at once: 16 GiB in double precision


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
        weight: of every node in a loss, [N, 1]; None: they all count alike.
        real: which graphs are more than padding, bool [G]; None: all of them.
    """

    x: Tensor
    edge_index: Tensor
    edge_attr: Tensor
    y: Tensor
    batch: Tensor
    num_graphs: int
    weight: Tensor | None = None
    real: Tensor | None = None

    @cached_property
    def graph(self) -> Graph:
        """The structure, indexed once."""
        return Graph(self.edge_index, len(self.x), batch=self.batch)

    @property
    def sizes(self) -> Tensor:
        """Nodes of every graph, [G]."""
        return torch.bincount(self.batch, minlength=self.num_graphs)

    def to(self, device: torch.device | str) -> GraphBatch:
        """This batch on another device, with its structure where that was indexed before; from pinned memory nobody waits."""
        device = torch.device(device)
        if device == self.x.device:
            return self
        there = device.type != "cpu"  # who reads on the CPU would not wait for a copy under way
        return self.mapped(lambda tensor: tensor.to(device, non_blocking=there))

    def pinned(self, device: torch.device) -> GraphBatch:
        """This batch in memory that this GPU reads by itself."""
        with torch.cuda.device(device):  # a thread of its own would wake the first one
            return self.mapped(Tensor.pin_memory)

    def mapped(self, change: Callable[[Tensor], Tensor]) -> GraphBatch:
        """The same batch with every tensor changed, those of a structure that was indexed before as well."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {name: change(value) for name, value in values.items() if isinstance(value, Tensor)}
        batch = GraphBatch(**values)
        if "graph" in self.__dict__:
            batch.__dict__["graph"] = self.graph.mapped(change)  # where a cached property keeps its value
        return batch

    def overwrite(self, other: GraphBatch) -> None:
        """Take over a batch of the same sizes in place."""
        self.graph.overwrite(other.graph)
        overwrite(self.tensors(), other.tensors())

    def tensors(self) -> list[Tensor]:
        """Those of the batch, without its structure."""
        return [value for field in fields(self) if isinstance(value := getattr(self, field.name), Tensor)]

    def padded(self, nodes: int, edges: int, graphs: int) -> GraphBatch:
        """With graphs of zeros at the end, so that there are exactly so many nodes, edges and graphs.

        The extra nodes are shared out evenly among the extra graphs, so that each is small, and the extra edges, self loops,
        among the extra nodes. ``weight`` and ``real`` tell what is padding; edges that are sorted stay so.
        """
        more_nodes, more_edges, more_graphs = self._missing(nodes, edges, graphs)
        place, loop = (torch.arange(count, device=self.x.device) for count in (more_nodes, more_edges))
        owner = len(self.x) + loop * more_nodes // max(more_edges, 1)
        graph = self.num_graphs + ((place + 1) * more_graphs - 1) // max(more_nodes, 1)  # the last node is in the last graph
        return GraphBatch(
            _lengthened(self.x, more_nodes),
            torch.cat([self.edge_index, owner.expand(2, -1).to(self.edge_index.dtype)], 1),
            _lengthened(self.edge_attr, more_edges),
            _lengthened(self.y, more_nodes),
            torch.cat([self.batch, graph.to(self.batch.dtype)]),
            graphs,
            weight=_lengthened(self.x.new_ones(len(self.x), 1), more_nodes),
            real=torch.arange(graphs, device=self.x.device) < self.num_graphs,
        )

    def _missing(self, nodes: int, edges: int, graphs: int) -> tuple[int, int, int]:
        """How many nodes, edges and graphs there are to add."""
        per_node = self.y.dim() == 2 and len(self.y) == len(self.x)
        expect(per_node, "y", f"answers per node, of shape [{len(self.x)}, T]", list(self.y.shape))
        wanted = {"nodes": nodes, "edges": edges, "graphs": graphs}
        present = (len(self.x), self.edge_index.shape[1], self.num_graphs)
        for (name, count), least in zip(wanted.items(), present, strict=True):
            expect(count >= least, name, f"{least} or more, which is what the batch holds", count)
        more = (nodes - present[0], edges - present[1], graphs - present[2])
        housed = (more[0] > 0) == (more[2] > 0) and (more[0] > 0 or more[1] == 0)
        expect(housed, "nodes", "more nodes where there are more edges, and more graphs for more nodes", f"{more} more")
        return more

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


def _lengthened(values: Tensor, rows: int) -> Tensor:
    return torch.cat([values, values.new_zeros(rows, *values.shape[1:])])


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
