"""Algebraic multigrid by smoothed aggregation (Vanek, Mandel and Brezina 1996) as a preconditioner of BiCGStab.

Where neighbours pull at each other the error that a few sweeps leave is smooth, and smooth error is little work on a coarser
graph:

    aggregates   P0 [N, n]: every node belongs to one coarse node
    smoothing    S = I - omega D^-1 A takes the steps out of P0;  A = I - W = D - (off-diagonal part)
    transfers    P = S P0 down to the nodes, R = mean over the aggregate, times (I - A omega D^-1), up from them
    coarse       A_c = R A P = R0 A S^2 P0, because (I - A Q) A = A (I - Q A)

All patterns depend on the graph alone: they are found once and kept with the graph. A solve only fills in the numbers, in
float64, since rows of A_c nearly cancel. A cycle goes to the coarsest graph and back with one relaxation on each level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from convergent.factors import version
from convergent.graph import Graph
from convergent.kernels import Rows, backend
from convergent.kernels.reference import row_of_position
from convergent.maps import FixedPointMap, LinearMap
from convergent.solvers.bicgstab import BiCGStab
from convergent.solvers.solver import Burst, Solver

OMEGA = 0.66  # of the smoothing of the transfers
LEVELS = 25
BLOCKS = 64  # that a sweep may be cut into
FILL = 8  # smoothed transfers are worth it while a product with them has at most so many terms per edge and node
AIM = 0.5  # go a little below the goal: rounding parts the recursive residual from the true one, and another burst costs more
LOSS = 3e-3  # single precision is enough while its rounding, times 1 / (1 - c), stays below


@dataclass(frozen=True)
class Multigrid(BiCGStab):
    """BiCGStab, preconditioned by a V-cycle of smoothed aggregation: for large graphs with smooth errors, such as grids.

    The number of steps hardly grows with the size of the graph or with 1 / (1 - c), where c is the contraction factor.
    """

    def plan(self, fixed: FixedPointMap, picard_steps: float) -> list[Solver]:
        return [self, BiCGStab()]

    def burst(self, fixed: FixedPointMap, start: Tensor | None, goal: Tensor, limit: int) -> Burst:
        assert isinstance(fixed, LinearMap)
        return super().burst(_prepared(fixed).widen(fixed), start, AIM * goal, limit)

    def preconditioner(self, fixed: LinearMap) -> Callable[[Tensor], Tensor]:
        return _prepared(fixed).cycle


# --- structure ---


class Level(NamedTuple):
    """One step of the hierarchy: a graph and the patterns that lead from it to the next coarser one."""

    rows: Rows  # the graph, n nodes, edges sorted by row
    loops: Tensor  # positions of the self loops
    size: Tensor  # [n] the size of a node's aggregate
    groups: Rows  # the members of every aggregate
    omega: float  # 0: transfers without smoothing
    once: Rows  # P = S P0 [n, columns]
    twice: Rows  # S^2 P0 [n, columns]
    injection: Rows  # P0 [n, columns]
    coarse: Rows  # A_c, with its diagonal
    local: bool  # most neighbours have near numbers: sweeps may go by blocks, in parallel

    @property
    def columns(self) -> int:
        """The number of coarse nodes."""
        return len(self.groups.pointer) - 1


class Hierarchy(NamedTuple):
    levels: list[Level]
    bottom: Rows
    bottom_loops: Tensor


def hierarchy(graph: Graph) -> Hierarchy:
    """The levels of a graph, found once and kept."""
    return graph.cached("hierarchy", lambda: build(Rows(graph.rows.pointer, graph.rows.column, None)))


def build(rows: Rows) -> Hierarchy:
    """Coarsen until no node has a neighbour; edges at least halve from level to level."""
    levels: list[Level] = []
    loops = _loops(rows)
    while len(loops) < len(rows.column) and len(levels) < LEVELS:
        level = _coarsen(rows, loops)
        levels.append(level)
        rows, loops = level.coarse, _loops(level.coarse)
    return Hierarchy(levels, rows, loops)


def _loops(rows: Rows) -> Tensor:
    return (row_of_position(rows) == rows.column).nonzero().squeeze(1)


def _local(rows: Rows) -> bool:
    """Whether three of four edges stay within one of many blocks of rows."""
    scale = BLOCKS / max(len(rows.pointer) - 1, 1)
    home, there = ((node.double() * scale).int() for node in (row_of_position(rows), rows.column))
    return 4 * int((home == there).sum()) >= 3 * len(rows.column)


def _coarsen(rows: Rows, loops: Tensor) -> Level:
    kernels = backend(rows.pointer)
    aggregate = kernels.aggregate(rows)
    level = _smoothed(rows, loops, aggregate)
    while level is None:  # graphs that mix fast: larger aggregates, no smoothing
        groups, injection = _injection(rows, aggregate)
        count = len(groups.pointer) - 1
        coarse = kernels.reach(rows, injection, count, groups)
        if 2 * len(coarse.column) <= len(rows.column) or len(coarse.column) == count:
            size = groups.pointer.diff()[aggregate.clamp(min=0)]
            return Level(rows, loops, size, groups, 0.0, injection, injection, injection, coarse, _local(rows))
        further = kernels.aggregate(coarse)
        alone = further < 0  # an aggregate without neighbours stays
        further[alone] = further.max() + 1 + torch.arange(int(alone.sum()), device=further.device)
        _, further = torch.unique(further, return_inverse=True)
        aggregate = torch.where(aggregate < 0, aggregate, further[aggregate.clamp(min=0)])
    return level


def _smoothed(rows: Rows, loops: Tensor, aggregate: Tensor) -> Level | None:
    """A level with smoothed transfers, or None where they would fill in too much."""
    kernels = backend(rows.pointer)
    groups, injection = _injection(rows, aggregate)
    count, most = len(groups.pointer) - 1, FILL * (len(rows.column) + len(rows.pointer))
    patterns = [injection]
    for _ in range(2):
        patterns.append(kernels.reach(rows, patterns[-1], count))
        if _terms(rows, patterns[-1]) > most:
            return None
    coarse = kernels.reach(rows, patterns[-1], count, groups)
    if 2 * len(coarse.column) > len(rows.column) and len(coarse.column) > count:
        return None
    size = groups.pointer.diff()[aggregate.clamp(min=0)]
    return Level(rows, loops, size, groups, OMEGA, patterns[1], patterns[2], injection, coarse, _local(rows))


def _terms(rows: Rows, inner: Rows) -> int:
    return len(inner.column) + int(inner.pointer.diff()[rows.column].sum())


def _injection(rows: Rows, aggregate: Tensor) -> tuple[Rows, Rows]:
    """The members of every aggregate, and P0."""
    kind, held = rows.column.dtype, aggregate >= 0
    count = int(aggregate.max()) + 1 if len(aggregate) else 0
    members = held.nonzero().squeeze(1)
    pointer, order = backend(aggregate).group(aggregate[members], count)
    groups = Rows(pointer.to(kind), members[order].to(kind), None)
    starts = torch.nn.functional.pad(held.cumsum(0), (1, 0))
    return groups, Rows(starts.to(kind), aggregate[members].to(kind), None)


# --- numbers ---


class Operator(NamedTuple):
    """A = D - N of one level, and P to it from the next."""

    level: Level | None  # None on the coarsest
    rows: Rows
    weight: Tensor  # N [E, H]; zero on the diagonal
    inverse: Tensor | None  # 1 / D [n, H]; None: D = I
    prolongation: Tensor | None  # P [cells, H]


class Cycle:
    """The operators of all levels for one map, in one dtype."""

    def __init__(self, fixed: LinearMap, dtype: torch.dtype):
        self.version, self.dtype = version(fixed.weight), dtype
        self.weight = fixed.weight.detach().to(dtype)  # not the tensor it is kept under, which could then never go
        structure = hierarchy(fixed.graph)
        self.operators = list(_operators(structure, backend(fixed.bias).ordered(fixed.graph.rows, self.weight)))

    def widen(self, fixed: LinearMap) -> LinearMap:
        """The map in the dtype of the cycle."""
        return fixed if fixed.dtype == self.dtype else fixed.with_parameters(self.weight, fixed.bias.to(self.dtype))

    def cycle(self, b: Tensor, depth: int = 0) -> Tensor:
        """x with A x near b, from zero."""
        level, rows, weight, inverse, prolongation = self.operators[depth]
        kernels = backend(b)
        if level is None:
            return kernels.relax(rows, weight, inverse, b, torch.zeros_like(b), False)
        coarse = kernels.restrict(rows, weight, inverse, b, level.groups, level.omega)
        x = kernels.propagate(level.once, prolongation, self.cycle(coarse, depth + 1))
        return kernels.relax(rows, weight, inverse, b, x, level.local)


def _operators(structure: Hierarchy, weight: Tensor) -> Iterator[Operator]:
    """From the finest to the coarsest."""
    kernels, dtype = backend(weight), weight.dtype
    rows = structure.levels[0].rows if structure.levels else structure.bottom
    loops = structure.levels[0].loops if structure.levels else structure.bottom_loops
    nodes = len(rows.pointer) - 1
    diagonal = torch.ones(nodes, weight.shape[1], dtype=torch.float64, device=weight.device)
    if len(loops):
        diagonal.index_add_(0, rows.column[loops].long(), weight[loops].double(), alpha=-1)
        weight = weight.index_fill(0, loops, 0.0)
    plain = not len(loops)
    for level in structure.levels:
        inverse = 1 / diagonal
        scale = level.size.to(torch.float64).clamp(min=1).reciprocal().unsqueeze(1)
        values = torch.ones(len(level.injection.column), weight.shape[1], dtype=torch.float64, device=weight.device)
        prolongation = values
        if level.omega:
            scales = torch.full_like(inverse, 1 - level.omega), level.omega * inverse
            args = (level.rows, weight, *scales)
            prolongation = kernels.combine(*args, level.injection, values, level.once, level.columns)
            values = kernels.combine(*args, level.once, prolongation, level.twice, level.columns)
        scales = diagonal * scale, -scale.expand_as(diagonal)
        coarse = kernels.combine(level.rows, weight, *scales, level.twice, values, level.coarse, level.columns, level.groups)
        yield Operator(level, level.rows, weight.to(dtype), None if plain else inverse.to(dtype), prolongation.to(dtype))
        plain = False
        diagonal, weight = _split(level.coarse, coarse)
    yield Operator(None, structure.bottom, weight.to(dtype), (1 / diagonal).to(dtype), None)


def _split(rows: Rows, values: Tensor) -> tuple[Tensor, Tensor]:
    """D and N of A = D - N. A row whose diagonal is lost to the signs of its weights is made dominant: it only guides."""
    loops = _loops(rows)
    diagonal = values[loops]  # every row has one
    weight = -values.index_fill(0, loops, 0.0)
    others = torch.zeros_like(diagonal).index_add_(0, row_of_position(rows), weight.abs())
    safe = diagonal > 0.1 * others
    return torch.where(safe, diagonal, torch.where(others > 0, others, 1.0)), weight


# By the weights and the graph they were made from, as long as both live: an adjoint has the same weights on another graph.
_cycles = WeakTensorKeyDictionary()


def _prepared(fixed: LinearMap) -> Cycle:
    by_graph = _cycles.setdefault(fixed.weight, WeakKeyDictionary())
    known = by_graph.get(fixed.graph)
    if known is None or known.version != version(fixed.weight):
        loss = torch.finfo(fixed.dtype).eps / (1 - float(fixed.contraction.max())) if fixed.contraction.numel() else 0.0
        known = by_graph[fixed.graph] = Cycle(fixed, torch.float64 if loss > LOSS else fixed.dtype)
    return known
