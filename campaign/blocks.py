"""The structure of a batch for references: edges in slots of their rows, graphs as dense blocks. Nothing of it is the library's."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

STEPS = (4, 8, 16, 32, 64)  # sizes that graphs are padded to


@dataclass(frozen=True)
class Structure:
    """Row i of a graph sums over the edges whose ``row`` is i and reads their ``column``."""

    row: Tensor  # [E] int64
    column: Tensor  # [E] int64
    sizes: Tensor  # [G] int64, nodes of every graph

    @property
    def num_nodes(self) -> int:
        return int(self.sizes.sum())

    @property
    def graph_of(self) -> Tensor:
        """[N]"""
        return torch.repeat_interleave(torch.arange(len(self.sizes), device=self.sizes.device), self.sizes)

    def transposed(self) -> Structure:
        return Structure(self.column, self.row, self.sizes)

    def only(self, graph: int) -> tuple[Structure, Tensor, Tensor]:
        """One graph alone, and where its nodes and edges stand."""
        nodes = (self.graph_of == graph).nonzero().squeeze(1)
        first = int(self.sizes[:graph].sum())
        edges = ((self.row >= first) & (self.row < first + len(nodes))).nonzero().squeeze(1)
        return Structure(self.row[edges] - first, self.column[edges] - first, self.sizes[graph : graph + 1]), nodes, edges

    def slots(self) -> Tensor:
        """The edges of every row, [N, most edges of a row]; E where there is none."""
        degree = torch.bincount(self.row, minlength=self.num_nodes)
        order = torch.argsort(self.row, stable=True)
        first = torch.cumsum(degree, 0) - degree
        row = self.row[order]
        place = torch.arange(len(row), device=row.device) - first[row]
        slots = torch.full((self.num_nodes, int(degree.max()) if len(degree) else 0), len(row), device=row.device)
        slots[row, place] = order
        return slots

    def sum_rows(self, values: Tensor) -> Tensor:
        """[E, H] -> [N, H]"""
        return values.new_zeros(self.num_nodes, values.shape[1]).index_add(0, self.row, values)

    def norm(self, values: Tensor, kind: str) -> Tensor:
        """The largest size ("max") or the sum of sizes ("one") over the nodes of each graph, [N, H] -> [G, H]."""
        lanes = values.new_zeros(len(self.sizes), values.shape[1])
        index = self.graph_of.unsqueeze(1).expand_as(values)
        return lanes.scatter_reduce(0, index, values.abs(), {"max": "amax", "one": "sum"}[kind])


@dataclass(frozen=True)
class _Bucket:
    nodes: Tensor  # [n] nodes of its graphs
    graph: Tensor  # [n] which of its graphs they belong to
    place: Tensor  # [n] and where in it
    inverse: Tensor  # [g, H, m, m]
    defect: Tensor  # [g, H] the norm of 1 - inverse (I - W), with its rounding


class Inverse:
    """(I - W)^-1 of every graph and head in float64, from one weight per edge and head."""

    def __init__(self, structure: Structure, weight: Tensor):
        self.structure, self.weight = structure, weight.double()
        first = torch.cumsum(structure.sizes, 0) - structure.sizes
        self.graph = structure.graph_of
        self.place = torch.arange(structure.num_nodes, device=first.device) - first[self.graph]
        bounds = [0, *STEPS]
        largest = int(structure.sizes.max()) if len(structure.sizes) else 0
        assert largest <= STEPS[-1], f"graphs of at most {STEPS[-1]} nodes, but got {largest}"
        made = (self._bucket(low, high) for low, high in pairwise(bounds))
        self.buckets = [bucket for bucket in made if bucket is not None]

    def _bucket(self, low: int, size: int) -> _Bucket | None:
        member = (self.structure.sizes > low) & (self.structure.sizes <= size)
        if not bool(member.any()):
            return None
        number = torch.cumsum(member, 0) - 1
        nodes = member[self.graph].nonzero().squeeze(1)
        edges = member[self.graph[self.structure.row]].nonzero().squeeze(1)
        row, column = self.structure.row[edges], self.structure.column[edges]
        heads = self.weight.shape[1]
        matrix = self.weight.new_zeros(int(member.sum()), size, size, heads)
        index = (number[self.graph[row]], self.place[row], self.place[column])
        matrix.index_put_(index, -self.weight[edges], accumulate=True)
        diagonal = torch.arange(size, device=row.device)
        matrix[:, diagonal, diagonal] += 1
        matrix = matrix.permute(0, 3, 1, 2).contiguous()
        inverse = torch.linalg.inv_ex(matrix).inverse
        eye = torch.eye(size, dtype=inverse.dtype, device=inverse.device)
        rounding = 4 * size * torch.finfo(inverse.dtype).eps * (inverse.abs() @ matrix.abs())
        defect = ((eye - inverse @ matrix).abs() + rounding).sum(-1).amax(-1)
        return _Bucket(nodes, number[self.graph[nodes]], self.place[nodes], inverse, defect)

    def trusted(self) -> Tensor:
        """Where |(I - W)^-1| is at most twice the size of what was found for it, bool [N, H]."""
        answer = torch.ones(self.structure.num_nodes, self.weight.shape[1], dtype=torch.bool, device=self.weight.device)
        for bucket in self.buckets:
            answer[bucket.nodes] = (bucket.defect <= 0.5)[bucket.graph]
        return answer

    def __call__(self, values: Tensor, absolute: bool = False) -> Tensor:
        """(I - W)^-1 times node values [N, H]; ``absolute``: with the size of every entry."""
        answer = torch.zeros_like(values)
        for bucket in self.buckets:
            graphs, heads, size, _ = bucket.inverse.shape
            right = values.new_zeros(graphs, size, heads)
            right[bucket.graph, bucket.place] = values[bucket.nodes]
            inverse = bucket.inverse.abs() if absolute else bucket.inverse
            left = (inverse @ right.permute(0, 2, 1).unsqueeze(-1)).squeeze(-1)  # [g, H, m]
            answer[bucket.nodes] = left.permute(0, 2, 1)[bucket.graph, bucket.place]
        return answer
