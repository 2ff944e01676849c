"""Systems (I - W) x = b in float64, all heads at once: what an elimination and its peers are given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from convergent import Graph
from convergent.kernels.elimination import Symbolic, analyse


@dataclass(frozen=True)
class LinearSystem:
    """One matrix I - W per graph and head. What depends on the structure alone is made once and kept."""

    graph: Graph
    weight: Tensor  # [E, H]
    right: Tensor  # [2, N, H]: a source, and the certificate's ones
    adjoint: Tensor  # [1, N, H]
    scale: Tensor | None = None  # [N, H] by which the rows of nodes that read others become symmetric, where they can

    @property
    def heads(self) -> int:
        return self.weight.shape[1]

    def to(self, device: str) -> LinearSystem:
        scale = None if self.scale is None else self.scale.to(device)
        weight, right, adjoint = (part.to(device) for part in (self.weight, self.right, self.adjoint))
        return replace(self, graph=self.graph.to(device), weight=weight, right=right, adjoint=adjoint, scale=scale)

    @cached_property
    def symbolic(self) -> Symbolic:
        return analyse(self.graph.rows, self.graph.segments)

    @cached_property
    def matrices(self) -> list[list[Any]]:
        """I - W of every graph and head as scipy's sparse arrays."""
        from scipy.sparse import csc_array, eye_array

        row, column, found = self.graph.row.numpy(), self.graph.column.numpy(), []
        for first, last in zip(self.graph.segments[:-1].tolist(), self.graph.segments[1:].tolist(), strict=True):
            mine = np.flatnonzero((row >= first) & (row < last))
            ends, size = (row[mine] - first, column[mine] - first), last - first
            weights = self.weight[mine].numpy().T
            found.append([(eye_array(size) - csc_array((values, ends), shape=(size, size))).tocsc() for values in weights])
        return found

    @cached_property
    def form(self) -> Form:
        return Form(self)


class Answer(NamedTuple):
    """What a forward and a backward pass find."""

    value: Tensor  # [N, H]
    gradient: Tensor  # [E, H], of the weights


class Compressed(NamedTuple):
    """Where the entries of a matrix go in compressed rows; entries at one place add up."""

    pointer: Tensor  # [size + 1]
    column: Tensor
    place: Tensor  # of every entry

    @staticmethod
    def of(row: Tensor, column: Tensor, size: int) -> Compressed:
        places, place = torch.unique(row * size + column, return_inverse=True)
        return Compressed(torch.searchsorted(places, torch.arange(size + 1) * size), places % size, place)

    def merged(self, values: Tensor) -> Tensor:
        """The entries in their order, differentiable."""
        return values.new_zeros(len(self.column)).index_add(0, self.place, values)

    def matrix(self, merged: Tensor) -> Tensor:
        """As torch's CSR tensor."""
        size = len(self.pointer) - 1
        return torch.sparse_csr_tensor(self.pointer, self.column, merged, (size, size))


class Form:
    """The entries of one matrix per head, all graphs as its blocks: I - W, or S (I - W) where a scale makes that symmetric.

    Symmetric means: nodes that read nobody are the identity, and what others read of them is on the right-hand side.
    """

    def __init__(self, system: LinearSystem) -> None:
        row, column, nodes = system.graph.row.long(), system.graph.column.long(), torch.arange(system.graph.num_nodes)
        self.scale = system.scale
        self.row, self.column, self.kept = row, column, torch.ones_like(row, dtype=torch.bool)
        self.read = torch.zeros_like(self.kept)  # edges to a node that reads nobody
        if self.scale is not None:
            pinned = system.weight.new_zeros(len(nodes)).index_add_(0, row, system.weight[:, 0]) == 0
            self.kept, self.read = ~pinned[row] & ~pinned[column], ~pinned[row] & pinned[column]
            self.scale = torch.where(pinned[:, None], 1.0, self.scale / self.scale[~pinned].mean(0))
        self.rows, self.columns = torch.cat([row[self.kept], nodes]), torch.cat([column[self.kept], nodes])
        self.size, self.heads = len(nodes), system.heads

    @property
    def symmetric(self) -> bool:
        return self.scale is not None

    @cached_property
    def blocks(self) -> tuple[Tensor, Tensor]:
        """Rows and columns of the matrix that has all heads as its blocks."""
        start = torch.arange(self.heads)[:, None] * self.size
        return (self.rows + start).flatten(), (self.columns + start).flatten()

    @cached_property
    def compressed(self) -> Compressed:
        return Compressed.of(self.rows, self.columns, self.size)

    @cached_property
    def compressed_blocks(self) -> Compressed:
        return Compressed.of(*self.blocks, self.size * self.heads)

    def values(self, weight: Tensor) -> Tensor:
        """The entries, [H, entries], differentiable."""
        if self.scale is None:
            return torch.cat([-weight, weight.new_ones(self.size, self.heads)]).t()
        return torch.cat([-(weight * self.scale[self.row])[self.kept], self.scale]).t()

    def right(self, weight: Tensor, right: Tensor) -> Tensor:
        """The right-hand side, [H, N], differentiable."""
        if self.scale is None:
            return right.t()
        known = weight[self.read] * right[self.column[self.read]]
        return (right.index_add(0, self.row[self.read], known) * self.scale).t()
