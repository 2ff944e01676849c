"""Random operators for kernels: nasty on purpose, contracting by construction."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from convergent.kernels import reference
from convergent.kernels.reference import Rows


@dataclass
class Problem:
    rows: Rows
    segments: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor
    x: torch.Tensor
    row: torch.Tensor  # of every position

    def to(self, device: str) -> Problem:
        pointer, column, order = self.rows
        rows = Rows(pointer.to(device), column.to(device), None if order is None else order.to(device))
        moved = {name: getattr(self, name).to(device) for name in ("segments", "weight", "bias", "x", "row")}
        return replace(self, rows=rows, **moved)

    @property
    def graphs(self) -> int:
        return len(self.segments) - 1

    def table(self, value: float) -> torch.Tensor:
        return torch.full((self.graphs, self.bias.shape[1]), value, dtype=torch.float64, device=self.bias.device)


def make(
    sizes: tuple[int, ...],
    heads: int,
    dtype: torch.dtype = torch.float64,
    permuted: bool = False,
    index: torch.dtype = torch.int32,
    factor: float = 0.8,
    norm: str = "max",
    degree: int = 4,
) -> Problem:
    """Random graphs with parallel edges, self loops and isolated nodes, whose rows (or columns) sum to at most ``factor``."""
    generator = torch.Generator().manual_seed(sum(sizes) + heads)
    segments = torch.tensor([0, *sizes]).cumsum(0)
    pairs = []
    for start, size in zip(segments.tolist(), sizes, strict=False):
        if size:
            used = max(1, size - size // 5)  # the last fifth has no edges
            pairs.append(torch.randint(0, used, (2, degree * size), generator=generator) + start)
            pairs.append(torch.full((2, 2), start))  # two parallel self loops
    row, column = torch.cat(pairs, 1) if pairs else torch.zeros(2, 0, dtype=torch.long)
    nodes = sum(sizes)
    key = row if norm == "max" else column
    weight = torch.randn(len(row), heads, generator=generator, dtype=torch.float64)
    weight *= factor / torch.zeros(nodes, heads, dtype=torch.float64).index_add_(0, key, weight.abs())[key]
    pointer, order = reference.group(row, nodes)
    if not permuted:
        weight = weight[order]
    return Problem(
        Rows(pointer.to(index), column[order].to(index), order.to(index) if permuted else None),
        segments.to(index),
        weight.to(dtype),
        torch.randn(nodes, heads, generator=generator, dtype=torch.float64).to(dtype),
        torch.randn(nodes, heads, generator=generator, dtype=torch.float64).to(dtype),
        row[order],
    )
