"""The large problems, made on the device: x = W x + b on a graph whose nodes have equally many edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from convergent import Graph
from convergent.kernels import Rows

DEGREE, NEAR = 10, 500  # edges of a node; how far its neighbours are in a graph with locality
GAMMA = 0.5  # the sum of every row
KINDS = ("local", "random")
CHUNK = 1 << 24  # numbers in float64 at a time, where an answer is checked


@dataclass(frozen=True)
class Regular:
    """A multi-head linear system in float32; edges are sorted by row, so that rows are slices of equal length."""

    kind: str
    edge_index: Tensor  # [2, E] int32
    weight: Tensor  # [E, H]
    bias: Tensor  # [N, H]

    @property
    def row(self) -> Tensor:
        return self.edge_index[0]

    @property
    def column(self) -> Tensor:
        return self.edge_index[1]

    @property
    def nodes(self) -> int:
        return len(self.bias)

    @property
    def edges(self) -> int:
        return self.edge_index.shape[1]

    @property
    def heads(self) -> int:
        return self.bias.shape[1]

    @cached_property
    def rows(self) -> Rows:
        pointer = torch.arange(0, self.edges + 1, DEGREE, dtype=torch.int32, device=self.bias.device)
        return Rows(pointer, self.column, None)

    @cached_property
    def segments(self) -> Tensor:
        return torch.tensor([0, self.nodes], dtype=torch.int32, device=self.bias.device)

    @cached_property
    def contraction(self) -> Tensor:
        """The largest sum of a row, [1, H] float64."""
        return self.weight.view(self.nodes, DEGREE, self.heads).sum(1, dtype=torch.float64).amax(0, keepdim=True)

    def graph(self) -> Graph:
        return Graph(self.edge_index, self.nodes)

    def settings(self) -> dict[str, Any]:
        sizes = {"nodes": self.nodes, "edges": self.edges, "heads": self.heads}
        return {"kind": self.kind, **sizes, "gamma": GAMMA, "dtype": "float32"}

    # --- answers, checked in float64 without the library, some rows at a time ---

    def chunks(self) -> Iterator[tuple[slice, slice]]:
        """Rows, and their edges."""
        size = max(1, CHUNK // (DEGREE * self.heads))
        for first in range(0, self.nodes, size):
            last = min(first + size, self.nodes)
            yield slice(first, last), slice(first * DEGREE, last * DEGREE)

    def away(self, x: Tensor, y: Tensor) -> float:
        """The largest entry of W x + b - y."""
        worst = 0.0
        for nodes, edges in self.chunks():
            terms = self.weight[edges].double() * x[self.column[edges]]
            image = terms.view(-1, DEGREE, self.heads).sum(1) + self.bias[nodes]
            worst = max(worst, float((image - y[nodes]).abs().max()))
        return worst

    def adjoint_away(self, v: Tensor, right: Tensor) -> float:
        """The 1-norm of W^T v + right - v over that of right, for the head where it is largest."""
        image = right.double() - v
        for nodes, edges in self.chunks():
            across = v[nodes].double().repeat_interleave(DEGREE, 0)
            image.index_add_(0, self.column[edges], self.weight[edges] * across)
        return float((image.abs().sum(0) / right.double().abs().sum(0)).max())

    def gradient_away(self, v: Tensor, x: Tensor, gradient: Tensor) -> float:
        """The largest entry of v_i x_j - gradient_e over the edges e from i to j, over the largest of the gradient."""
        worst = 0.0
        for nodes, edges in self.chunks():
            product = v[nodes].double().repeat_interleave(DEGREE, 0) * x[self.column[edges]]
            worst = max(worst, float((product - gradient[edges]).abs().max()))
        return worst / float(gradient.abs().max())


def structure(kind: str, nodes: int, seed: int, device: str) -> Tensor:
    """The edges, sorted by row."""
    generator = torch.Generator(device).manual_seed(seed)
    low, high = (0, nodes - 1) if kind == "random" else (-NEAR, NEAR)
    drawn = torch.randint(low, high + 1, (nodes * DEGREE,), dtype=torch.int32, device=device, generator=generator)
    row = torch.arange(nodes, dtype=torch.int32, device=device).repeat_interleave(DEGREE)
    return torch.stack([row, drawn if kind == "random" else drawn.add_(row).clamp_(0, nodes - 1)])


def weighted(kind: str, edge_index: Tensor, heads: int, seed: int) -> Regular:
    """Weights with rows that sum to GAMMA, and a right-hand side."""
    device, nodes = edge_index.device, edge_index.shape[1] // DEGREE
    generator = torch.Generator(device).manual_seed(seed)
    weight = torch.rand(nodes, DEGREE, heads, device=device, generator=generator)
    weight.mul_(GAMMA / weight.sum(1, keepdim=True))
    bias = torch.rand(nodes, heads, device=device, generator=generator)
    return Regular(kind, edge_index, weight.view(-1, heads), bias)
