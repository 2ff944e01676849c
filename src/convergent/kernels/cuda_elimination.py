"""Elimination on CUDA: the launches of the Triton kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from convergent.kernels import cuda_fronts, cuda_substitution
from convergent.kernels.cuda_schedule import Card, card_of, power

if TYPE_CHECKING:
    from convergent.kernels.elimination import Symbolic

DOUBLE = torch.float64
CELLS = 128  # cells or rows that one program fills


class Numbers(NamedTuple):
    """The factors of all graphs and heads."""

    panels: Tensor  # [H, total]
    card: Card


def factor(symbolic: Symbolic, weight: Tensor, right: Tensor | None) -> tuple[Numbers, Tensor, Tensor | None]:
    card, heads, device = card_of(symbolic, weight.device), weight.shape[1], weight.device
    weight = weight.contiguous()
    panels = torch.zeros(heads, card.total, dtype=DOUBLE, device=device)
    flags = torch.zeros(2, symbolic.num_graphs, heads, dtype=torch.int32, device=device)
    if panels.numel():
        squares = torch.empty(heads, card.area, dtype=DOUBLE, device=device)
        _fill(card, weight, panels, flags[0])
        shared = (card.table, card.children, card.inverse, panels, squares)
        sizes = (card.total, card.area)
        if len(card.begins):
            tensors = (card.begins, card.ends, *shared, flags[0], flags[1])
            cuda_fronts.subtrees((len(card.begins), heads), tensors, (*sizes, heads), (card.side,), warps=card.side // 16)
        for fronts, _, tiles in card.levels:
            cuda_fronts.large_panels((len(fronts), heads), (fronts, *shared, flags[0], flags[1]), (*sizes, heads), (), warps=8)
            if len(tiles):
                cuda_fronts.large_squares((len(tiles), heads), (tiles, *shared), sizes, ())
    numbers = Numbers(panels, card)
    return numbers, flags[1] == 0, None if right is None else solve(symbolic, numbers, right, False)


def _fill(card: Card, weight: Tensor, panels: Tensor, signed: Tensor) -> None:
    """Weights, slacks and diagonals into the panels."""
    heads, nodes, cells = weight.shape[1], len(card.corner), len(card.place)
    lanes = min(power(heads), 16)
    blocks, tile = -(-heads // lanes), CELLS // lanes
    if cells:
        added = (card.cells, card.edges, card.place, weight, panels)
        cuda_fronts.scatter((-(-cells // tile), blocks), added, (cells, heads, card.total), (tile, lanes))
    order = card.pointer if card.order is None else card.order
    weight = weight if cells else panels  # an address that may be passed on
    summed = (card.pointer, order, card.graph_of, card.corner, weight, panels, signed)
    numbers = (nodes, heads, card.total)
    cuda_fronts.slacks((-(-nodes // tile), blocks), summed, numbers, (card.order is not None, tile, lanes))


def solve(symbolic: Symbolic, numbers: Numbers, right: Tensor, transposed: bool) -> Tensor:
    panels, card = numbers
    sides, nodes, heads = right.shape
    right = right.contiguous()
    out = torch.empty(right.shape, dtype=DOUBLE, device=right.device)
    if out.numel():
        x = torch.empty(sides * heads, nodes, dtype=DOUBLE, device=right.device)  # by position
        handed = torch.empty(sides * heads, len(card.beyond), dtype=DOUBLE, device=right.device)
        tensors = (card.table, card.children, card.inverse, card.beyond, card.sequence, panels, right, x, handed, out)
        sizes = (card.total, nodes, len(card.beyond), heads)

        def walk(begins: Tensor, ends: Tensor, down: bool, up: bool) -> None:
            if len(begins):
                grid = (len(begins), sides * heads)
                cuda_substitution.substitute(grid, (begins, ends, *tensors), sizes, (down, up, transposed))

        walk(card.begins, card.ends, True, not card.levels)
        for begins, ends, _ in card.levels:
            walk(begins, ends, True, False)
        for begins, ends, _ in reversed(card.levels):
            walk(begins, ends, False, True)
        if card.levels:
            walk(card.begins, card.ends, False, True)
    return out
