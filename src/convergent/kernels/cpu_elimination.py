"""Elimination on the CPU: the door to the symbolic step, the factorisation and the solves in numba."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from convergent.kernels import cpu_fronts, cpu_multifrontal, cpu_substitution
from convergent.kernels.cpu import _array, _as, _lanes, _number, _run, _structure
from convergent.kernels.cpu_dissection import UNCUT
from convergent.kernels.cpu_fronts import ENTRIES, NUMBERS, PANEL, PIECES, POINTER
from convergent.kernels.cpu_panels import REGISTER
from convergent.kernels.lanes import Lanes
from convergent.kernels.reference import Rows

if TYPE_CHECKING:
    from convergent.kernels.elimination import Symbolic

DISSECTED = 2e8  # multiply-adds after minimum degree from which on nested dissection is worth a try
PER_EDGE = 200  # of a symbolic step, in units of work in which SERIAL is counted
DOUBLE = torch.float64


class Fronts(NamedTuple):
    """The dense blocks that elimination goes through, as ``cpu_fronts`` describes them."""

    bounds: np.ndarray  # [G + 1] graph g has the fronts bounds[g] .. bounds[g + 1]
    table: np.ndarray  # [F + 1, 7]
    beyond: np.ndarray  # [entries] positions of the rows beyond the pivots
    into: np.ndarray  # [entries] the same rows as rows of the parent
    order: np.ndarray  # [N] the node at each position; both count from the first of their graph
    position: np.ndarray  # [N] its inverse
    fill: np.ndarray  # [G] numbers in the factors of one head
    flops: np.ndarray  # [G] multiply-adds for one head; infinite where the symbolic step gave up


class Numbers(NamedTuple):
    """The factors of all graphs and heads."""

    panels: np.ndarray  # block of heads after block of heads
    width: int  # heads of a block


def analyse(rows: Rows, segments: Tensor, limit: float) -> Fronts:
    """The symbolic step for every graph."""
    nodes, (pointer, column, _, _) = _array(segments), _structure(rows)
    count, graphs = len(pointer) - 1, len(nodes) - 1
    start, adjacency, order, position = (np.empty(size, np.int64) for size in (count + graphs, 2 * len(column), count, count))
    shape = [np.empty(count, np.int64) for _ in range(3)]
    counts, flops = np.zeros((graphs, 4), np.int64), np.zeros(graphs)
    lanes, work = _lanes(1, _number(DOUBLE), False), PER_EDGE * len(column)
    pattern = (start, adjacency, order, position, *shape, counts)
    _run("order", cpu_fronts, lanes, work, (nodes, pointer, column, float(limit), *pattern, flops))
    for graph in np.flatnonzero((flops > DISSECTED) & (np.diff(nodes) > UNCUT)).tolist():
        cpu_fronts.reorder(lanes, graph, nodes, pointer, float(limit), *pattern, flops)
    ends = np.zeros((graphs + 1, 4), np.int64)
    np.cumsum(counts, axis=0, out=ends[1:])
    bounds, entries = (np.ascontiguousarray(ends[:, kind]) for kind in (PIECES, ENTRIES))
    table = np.empty((bounds[-1] + 1, 7), np.int64)
    index, into = np.empty(entries[-1], np.int32), np.empty(entries[-1], np.int32)
    table[-1, POINTER] = entries[-1]
    _run("fronts", cpu_fronts, lanes, work, (nodes, pointer, *pattern, bounds, entries, table, index, into))
    return Fronts(bounds, table, index, into, order, position, counts[:, NUMBERS], flops)


class Places(NamedTuple):
    """Where the numbers of all factors lie, in units of a block of heads."""

    layout: np.ndarray  # [F + 1, 3]
    room: np.ndarray  # [G] scratch that a graph needs
    place: np.ndarray  # [E] where the weight at each position of the rows is added
    corner: np.ndarray  # [N, 2] where the slack and the diagonal of every node are
    structure: tuple[np.ndarray, np.ndarray, np.ndarray, bool]  # segments, and pointer, order of the rows and whether there is one
    fill: float  # of all graphs
    flops: float


def places(symbolic: Symbolic, group: int) -> Places:
    """Panels whose rows are multiples of ``group`` numbers long."""

    def make() -> Places:
        fronts, (pointer, column, order, permuted) = symbolic.fronts, _structure(symbolic.rows)
        layout, room = np.zeros((len(fronts.table), 3), np.int64), np.zeros(symbolic.num_graphs, np.int64)
        cpu_fronts.place_panels(fronts.bounds, fronts.table, group, layout, room)
        place, corner = np.empty(len(column), np.int64), np.empty((symbolic.num_nodes, 2), np.int64)
        segments, found = _array(symbolic.segments), (fronts.order, fronts.position, fronts.bounds, fronts.table, fronts.beyond)
        cpu_fronts.place_edges(segments, pointer, column, *found, layout, place, corner)
        sums = float(fronts.fill.sum()), float(fronts.flops.sum())
        return Places(layout, room, place, corner, (segments, pointer, order, permuted), *sums)

    return symbolic.cached(("places", group), make)


@cache
def _widths(heads: int, graphs: int, threads: int) -> tuple[Lanes, Lanes]:
    """Lanes for a block of heads, and for the columns of a panel: fewer heads where threads would have nothing to do."""
    narrow = next(width for width in (1, 2, 4, 8) if width >= min(heads, REGISTER))
    while narrow > 1 and graphs * -(-heads // narrow) < threads and heads > narrow // 2:
        narrow //= 2
    return _blocks(heads, narrow)


@cache
def _blocks(heads: int, narrow: int) -> tuple[Lanes, Lanes]:
    number = _number(DOUBLE)
    return _lanes(narrow, number, heads % narrow != 0), _lanes(REGISTER, number, False)


def factor(symbolic: Symbolic, weight: Tensor, right: Tensor | None) -> tuple[Numbers, Tensor, Tensor | None]:
    heads, nodes, fronts = weight.shape[1], symbolic.num_nodes, symbolic.fronts
    narrow, wide = _widths(heads, symbolic.num_graphs, torch.get_num_threads())
    where = places(symbolic, REGISTER // narrow.width)
    total, blocks = int(where.layout[-1, PANEL]), -(-heads // narrow.width)
    panels = torch.empty(blocks * total * narrow.width + 2 * REGISTER, dtype=DOUBLE)
    panels[-2 * REGISTER :] = 0  # whole vectors are read beyond the last panel
    bad = np.zeros((symbolic.num_graphs, heads))
    rights = np.empty((0, nodes, heads)) if right is None else _as(right, DOUBLE)
    solution = torch.empty(rights.shape, dtype=DOUBLE)
    if heads and nodes:
        args = (
            *where.structure, _array(weight), *fronts[:5], *where[:4], panels.numpy(), bad, rights, solution.numpy()
        )  # fmt: skip
        _run("factor", cpu_multifrontal, (narrow, wide), int((where.flops / 8 + 2 * where.fill) * heads), args)
    return Numbers(panels.numpy(), narrow.width), torch.from_numpy(bad == 0), None if right is None else solution


def solve(symbolic: Symbolic, numbers: Numbers, right: Tensor, transposed: bool) -> Tensor:
    out = torch.empty(right.shape, dtype=DOUBLE)
    sides, _, heads = right.shape
    if out.numel():
        fronts, (narrow, wide) = symbolic.fronts, _blocks(heads, numbers.width)
        where = places(symbolic, REGISTER // numbers.width)
        structure = (where.structure[0], fronts.bounds, fronts.table, fronts.beyond, fronts.order, where.layout)
        args = (*structure, numbers.panels, transposed, _as(right, DOUBLE), out.numpy())
        _run("solve", cpu_substitution, (narrow, wide), int(where.fill * (sides * heads / 4)), args)
    return out
