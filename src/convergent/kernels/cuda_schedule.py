"""The tables of the symbolic step as the Triton kernels read them, and the order in which fronts are taken, on a device.

Fronts of at most LARGEST rows are taken by subtrees, each one by one program; what is above them level by level, every front by a
program of its own and its square by as many as it has tiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from convergent.kernels import cpu_elimination
from convergent.kernels.cpu_fronts import ABOVE, FIRST, PANEL, POINTER, ROWS, WIDTH

if TYPE_CHECKING:
    from convergent.kernels.elimination import Symbolic

LARGEST = 64  # rows of a front that is eliminated in registers
SIDE = 32  # of the tiles of a square


class Card(NamedTuple):
    """A symbolic factorisation on a device."""

    table: Tensor  # [F + 1, 9] what cuda_fronts.field reads
    children: Tensor  # the children of all fronts, parent after parent
    inverse: Tensor  # for every child, of each row of its parent which row beyond its pivots it is; -1: none
    beyond: Tensor  # [entries] positions of the rows beyond the pivots
    begins: Tensor  # [T] subtrees of small fronts: begins[t] .. ends[t]
    ends: Tensor
    levels: list[
        tuple[Tensor, Tensor, Tensor]
    ]  # large fronts that may be eliminated together, the next ones, the tiles of their squares
    cells: Tensor  # [C + 1] edges of every cell of the panels that a weight is added to
    edges: Tensor  # [E]
    place: Tensor  # [C]
    corner: Tensor  # [N, 2] where slack and diagonal of every node are
    graph_of: Tensor  # [N]
    pointer: Tensor  # of the rows
    order: Tensor | None
    sequence: Tensor  # [N] the node at each position of the batch
    total: int  # numbers in the panels of a head
    area: int  # and in its squares
    side: int  # of the tile that holds the largest small front, a power of two


def card_of(symbolic: Symbolic, device: torch.device) -> Card:
    return symbolic.cached(("card", device), lambda: _card(symbolic, device))


def _card(symbolic: Symbolic, device: torch.device) -> Card:
    fronts, where = symbolic.fronts, cpu_elimination.places(symbolic, 1)
    table = fronts.table[:-1]
    left = table[:, ROWS] - table[:, WIDTH]
    children, inverse, offsets = _kinship(symbolic)
    begins, ends, levels = _schedule(symbolic)
    small = np.delete(table[:, ROWS], np.concatenate([np.zeros(0, np.int64), *levels]))
    side = power(int(small.max(initial=16)))
    square, area = _squares(table[:, ABOVE], left * (left + 1), levels)
    rows = np.zeros((len(fronts.table), 9), np.int64)
    rows[:-1, :3] = table[:, [FIRST, WIDTH, ROWS]]
    rows[:-1, 3], rows[:-1, 4], rows[:, 5] = where.layout[:-1, PANEL], square, fronts.table[:, POINTER]
    rows[:, 6] = _starts(np.bincount(table[table[:, ABOVE] >= 0, ABOVE], minlength=len(table)))
    rows[:-1, 7] = offsets
    rows[:-1, 8] = np.repeat(np.arange(symbolic.num_graphs), np.diff(fronts.bounds))
    order = np.arange(len(where.place)) if symbolic.rows.order is None else symbolic.rows.order.numpy()
    place, cells, edges = _cells(where.place, order)
    graph_of = np.repeat(np.arange(symbolic.num_graphs), symbolic.segments.diff().numpy())
    first = symbolic.segments.numpy()[graph_of].astype(np.int64)

    def move(array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    def moved(level: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        return move(level), move(level + 1), move(_tiles(level, left))

    return Card(
        move(rows), move(children), move(inverse), move(fronts.beyond), move(begins), move(ends),
        [moved(level) for level in levels], move(cells), move(edges), move(place), move(where.corner), move(graph_of),
        symbolic.rows.pointer.to(device), None if symbolic.rows.order is None else symbolic.rows.order.to(device),
        move(fronts.order + first), int(where.layout[-1, PANEL]), area, side,
    )  # fmt: skip


def power(size: int) -> int:
    """The next power of two."""
    return 1 << max(size - 1, 0).bit_length()


def _starts(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


def _kinship(symbolic: Symbolic) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The children of every front, and the way back from a parent's rows to theirs."""
    fronts = symbolic.fronts
    above, pointer = fronts.table[:-1, ABOVE], fronts.table[:, POINTER]
    child = np.flatnonzero(above >= 0)
    children = child[np.argsort(above[child], kind="stable")]
    room = np.where(above >= 0, fronts.table[above, ROWS], 0)
    offsets = _starts(room)
    inverse = np.full(offsets[-1], -1, np.int32)
    count = np.diff(pointer)
    entry = np.arange(len(fronts.into)) - np.repeat(pointer[:-1], count)
    inverse[np.repeat(offsets[:-1], count) + fronts.into] = entry
    return children, inverse, offsets[:-1]


def _schedule(symbolic: Symbolic) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Largest subtrees of small fronts as begins and ends, and what is above them level by level."""
    table = symbolic.fronts.table[:-1]
    above, small = table[:, ABOVE].tolist(), (table[:, ROWS] <= LARGEST).tolist()
    begin, level = list(range(len(table))), [0] * len(table)
    for front, parent in enumerate(above):
        if parent >= 0:
            begin[parent] = min(begin[parent], begin[front])
            if not small[front]:
                small[parent] = False
                level[parent] = max(level[parent], level[front] + 1)
    roots = [front for front, parent in enumerate(above) if small[front] and (parent < 0 or not small[parent])]
    large = np.flatnonzero(~np.array(small, dtype=bool))
    numbers = np.array(level, dtype=np.int64)[large]
    levels = [large[numbers == number] for number in range(int(numbers.max(initial=-1)) + 1)]
    ends = np.array(roots, dtype=np.int64) + 1
    return np.array([begin[root] for root in roots], dtype=np.int64), ends, levels


def _squares(above: np.ndarray, size: np.ndarray, levels: list[np.ndarray]) -> tuple[np.ndarray, int]:
    """Where each front leaves its square, and how much room all need: that of a large front is free again after its parent."""
    large = np.zeros(len(size), dtype=bool)
    for level in levels:
        large[level] = True
    place = _starts(np.where(large, 0, size))
    place, end = place[:-1], int(place[-1])
    free: list[tuple[int, int]] = []  # begin and size
    alive: dict[int, list[int]] = {}  # by parent
    for level in levels:
        for front in level.tolist():
            fit = min((spot for spot in free if spot[1] >= size[front]), key=lambda spot: spot[1], default=None)
            if fit is None:
                fit = (end, int(size[front]))
                end += fit[1]
            else:
                free.remove(fit)
            place[front] = fit[0]
            free += [(fit[0] + int(size[front]), fit[1] - int(size[front]))] if fit[1] > size[front] else []
            alive.setdefault(int(above[front]), []).append(front)
        for front in level.tolist():
            free += [(int(place[child]), int(size[child])) for child in alive.pop(front, [])]
    return place, end


def _tiles(level: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Front, row and column of the tiles of the squares of these fronts, [T, 3]."""
    down, across = -(-left[level] // SIDE), -(-(left[level] + 1) // SIDE)
    count = down * across
    which = np.repeat(np.arange(len(level)), count)
    number = np.arange(len(which)) - np.repeat(_starts(count)[:-1], count)
    return np.stack([level[which], number // across[which] * SIDE, number % across[which] * SIDE], axis=1)


def _cells(place: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where weights go, each place once, and the edges that meet there."""
    cells, count = np.unique(place, return_counts=True)
    return cells, _starts(count), order[np.argsort(place, kind="stable")]
