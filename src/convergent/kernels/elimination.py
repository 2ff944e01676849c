"""Elimination without pivoting of I - W: one symbolic step per structure, then factors that serve any number of solves.

    symbolic = analyse(graph.rows, graph.segments)
    factors = factor(symbolic, weight)          # weight [E, H]
    x = factors.solve(b)                        # (I - W) x = b
    y = factors.solve_transposed(g)             # (I - W)^T y = g

Where no weight of a graph and head is negative, every pivot is computed as a sum of what leaves its row (Grassmann, Taksar and
Heyman 1985): the slack 1 - sum_j w_ij, which is summed up exactly from the weights as they are stored, and the weights to nodes
that are not eliminated yet. Slacks are eliminated along, as one more column. While no slack is negative nothing is ever subtracted,
so every number is right to its last digits however close to one the rows are. Weights of either sign are eliminated as they are.

No pivoting is needed where I - W is an H-matrix: some scaling of |W| has rows that sum to less than one.
"""

from __future__ import annotations

import importlib
from functools import cached_property
from itertools import pairwise
from math import fsum
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from convergent.errors import expect
from convergent.kernels import Rows, backend

__all__ = ["Factors", "Symbolic", "analyse", "factor"]


class Symbolic:
    """The fronts of a structure, and what factors cost; made by ``analyse``, on the CPU."""

    def __init__(self, rows: Rows, segments: Tensor, fronts: Any):
        self.rows, self.segments, self.fronts = rows, segments, fronts  # on the CPU
        self.fill: np.ndarray = fronts.fill  # [G] numbers in the factors of one head
        self.flops: np.ndarray = fronts.flops  # [G] multiply-adds for one head; infinite where the graph was given up
        self.cache: dict[Any, Any] = {}

    @property
    def num_nodes(self) -> int:
        return len(self.rows.pointer) - 1

    @property
    def num_graphs(self) -> int:
        return len(self.segments) - 1

    @cached_property
    def complete(self) -> bool:
        """Whether every graph can be factorised: none exceeded the limit of multiply-adds."""
        return bool(np.isfinite(self.flops).all())

    def cached(self, name: Any, make: Any) -> Any:
        """What a backend derives from the structure, made once."""
        if name not in self.cache:
            self.cache[name] = make()
        return self.cache[name]

    def __repr__(self) -> str:
        sizes = f"num_nodes={self.num_nodes}, num_graphs={self.num_graphs}, fronts={len(self.fronts.table) - 1}"
        return f"Symbolic({sizes}, fill={int(self.fill.sum())}, flops={self.flops.sum():.3g})"


def analyse(rows: Rows, segments: Tensor, limit: float = float("inf")) -> Symbolic:
    """Order and factorise the pattern of every graph of a batch.

    Args:
        rows: the structure of W.
        segments: [G + 1] boundaries of the graphs.
        limit: multiply-adds for one head above which a graph is given up; what was spent on it by then is a small part of them.
    """
    from convergent.kernels import cpu_elimination

    parts = (None if part is None else part.cpu() for part in rows)
    rows, segments = Rows(*parts), segments.cpu()  # type: ignore[arg-type]
    return Symbolic(rows, segments, cpu_elimination.analyse(rows, segments, limit))


class Factors:
    """Factors of I - W for all graphs and heads.

    ``ok`` [G, H] says where every pivot is positive, and not merely by rounding; elsewhere solutions mean nothing.
    """

    def __init__(self, symbolic: Symbolic, weight: Tensor, kernels: ModuleType, numbers: Any, ok: Tensor):
        self.symbolic, self.weight, self.kernels, self.numbers, self.ok = symbolic, weight, kernels, numbers, ok
        self.sharpest: Tensor | None = None  # [G, H] factor from residual to error, once somebody has needed it
        self.with_signs = False  # whether it is what the factors of I - |W| prove

    def solve(self, right: Tensor) -> Tensor:
        """x with (I - W) x = right, in float64; right [N, H], or [R, N, H] for several right-hand sides per head."""
        return self._solve(right, False)

    def solve_transposed(self, right: Tensor) -> Tensor:
        """y with (I - W)^T y = right, in float64; right [N, H] or [R, N, H]."""
        return self._solve(right, True)

    def _solve(self, right: Tensor, transposed: bool) -> Tensor:
        shape = (self.symbolic.num_nodes, self.weight.shape[1])
        fits = right.dim() in (2, 3) and right.shape[-2:] == shape
        expect(fits, "right", f"a tensor of shape {list(shape)} or [R, {shape[0]}, {shape[1]}]", list(right.shape))
        several = right if right.dim() == 3 else right.unsqueeze(0)
        found = self.kernels.solve(self.symbolic, self.numbers, several, transposed)
        return found if right.dim() == 3 else found.squeeze(0)

    def closed(self, graph: int, head: int) -> Tensor:
        """The nodes of a graph from which, in this head, no node is reached whose row loses anything: [n], rising.

        Not empty only where the pivots of such a class are zero, or where rows sum to more than one.
        """
        rows, segments = self.symbolic.rows, self.symbolic.segments
        first, last = int(segments[graph]), int(segments[graph + 1])
        pointer = rows.pointer[first : last + 1].long()
        begin, end = int(pointer[0]), int(pointer[-1])
        edges = torch.arange(begin, end) if rows.order is None else rows.order[begin:end].long()
        weight = self.weight[edges.to(self.weight.device), head].double().abs().cpu()
        row = torch.repeat_interleave(torch.arange(last - first), pointer.diff())
        losing = torch.from_numpy(_losing(pointer.numpy() - begin, weight.numpy()))
        return first + _stranded(row, rows.column[begin:end].long() - first, weight > 0, losing)


def factor(symbolic: Symbolic, weight: Tensor, right: Tensor | None = None) -> tuple[Factors, Tensor | None]:
    """Factorise I - W, and solve for ``right`` [R, N, H] on the way, while the factors of a graph are in the cache."""
    edges = len(symbolic.rows.column)
    expect(weight.dim() == 2 and len(weight) == edges, "weight", f"a tensor of shape [{edges}, H]", list(weight.shape))
    expect(symbolic.complete, "symbolic", "graphs that were not given up", f"{np.isinf(symbolic.flops).sum()} that were")
    weight = weight.detach()
    weight = weight if weight.dtype in (torch.float32, torch.float64) else weight.float()
    kernels = importlib.import_module(f"{backend(weight).__name__}_elimination")
    numbers, ok, solution = kernels.factor(symbolic, weight, right)
    return Factors(symbolic, weight, kernels, numbers, ok), solution


def _losing(pointer: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Whether the sum of each row is below one, exactly."""
    return np.array([fsum((1.0, *(-weight[a:b]))) > 0 for a, b in pairwise(pointer)], dtype=bool)


def _stranded(row: Tensor, column: Tensor, used: Tensor, losing: Tensor) -> Tensor:
    """The nodes that reach no node that loses."""
    row, column = row[used], column[used]
    reaches = losing.clone()
    while True:
        further = reaches.index_put((row[reaches[column]],), torch.tensor(True))
        if bool((further == reaches).all()):
            return (~reaches).nonzero().squeeze(1)
        reaches = further
