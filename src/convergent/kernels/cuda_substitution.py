"""Triton kernels that solve with the factors of ``cuda_fronts``: down the fronts, children before parents, and back up.

Going down, a front adds up its right-hand side and what its children hand on, and hands on what lies beyond its pivots. Going up,
it reads the answers of the rows beyond its pivots. A program has one right-hand side of one head.
"""

from __future__ import annotations

import triton
import triton.language as tl

from convergent.kernels.cuda_fronts import CHILDREN, CHUNK, FIRST, INVERSE, PANEL, PIVOTS, POINTER, extent, field
from convergent.kernels.cuda_launch import Kernel


@triton.jit
def handed_on(table, front, children, inverse, handed, row, inside):
    """What the children hand on to these rows of a front."""
    sums = tl.zeros(row.shape, tl.float64)
    for index in range(field(table, front, CHILDREN), field(table, front + 1, CHILDREN)):
        child = tl.load(children + index)
        theirs = tl.load(inverse + field(table, child, INVERSE) + row, mask=inside, other=-1)
        sums += tl.load(handed + field(table, child, POINTER) + theirs, mask=theirs >= 0, other=0.0)
    return sums


@triton.jit
def block_of(panel, stride, width):
    """The part of a panel above the diagonal of the pivots: [PIVOTS, PIVOTS]."""
    row, column = tl.arange(0, PIVOTS)[:, None], tl.arange(0, PIVOTS)[None, :]
    return tl.load(panel + row * stride + column, mask=(column > row) & (column < width), other=0.0)


@triton.jit
def go_down(table, front, children, inverse, panels, sequence, right, x, handed, heads, TRANSPOSED: tl.constexpr):
    """With the columns of L; transposed with the rows of U, where a pivot is divided by the diagonal first."""
    first = field(table, front, FIRST)
    width, rows = extent(table, front)
    stride = rows + 1
    upper = panels + field(table, front, PANEL)
    panel = upper if TRANSPOSED else upper + width * stride
    line = tl.arange(0, PIVOTS)
    mine = line < width
    block = block_of(panel, stride, width)
    node = tl.load(sequence + first + line, mask=mine, other=0)
    value = tl.load(right + node * heads, mask=mine, other=0.0).to(tl.float64)
    value += handed_on(table, front, children, inverse, handed, line, mine)
    inverted = tl.load(upper + line * (stride + 1), mask=mine, other=0.0)
    for k in range(0, width):
        if TRANSPOSED:
            value = tl.where(line == k, value * inverted, value)
        pivot = tl.sum(tl.where(line == k, value, 0.0))
        value += pivot * tl.sum(tl.where(line[:, None] == k, block, 0.0), axis=0)
    tl.debug_barrier()  # several threads hold the same numbers: all have read before one writes
    tl.store(x + first + line, value, mask=mine)
    for start in range(width, rows, CHUNK):
        c = start + tl.arange(0, CHUNK)
        inside = c < rows
        part = tl.load(panel + line[:, None] * stride + c[None, :], mask=mine[:, None] & inside[None, :], other=0.0)
        sums = handed_on(table, front, children, inverse, handed, c, inside) + tl.sum(part * value[:, None], axis=0)
        tl.store(handed + field(table, front, POINTER) + c - width, sums, mask=inside)


@triton.jit
def go_up(table, front, beyond, panels, sequence, x, out, heads, TRANSPOSED: tl.constexpr):
    """With the rows of U; transposed with the columns of L."""
    first = field(table, front, FIRST)
    width, rows = extent(table, front)
    stride = rows + 1
    upper = panels + field(table, front, PANEL)
    panel = upper + width * stride if TRANSPOSED else upper
    line = tl.arange(0, PIVOTS)
    mine = line < width
    block = block_of(panel, stride, width)
    value = tl.load(x + first + line, mask=mine, other=0.0)
    for start in range(width, rows, CHUNK):
        c = start + tl.arange(0, CHUNK)
        inside = c < rows
        position = tl.load(beyond + field(table, front, POINTER) + c - width, mask=inside, other=0)
        read = tl.load(x + position, mask=inside, other=0.0)
        part = tl.load(panel + line[:, None] * stride + c[None, :], mask=mine[:, None] & inside[None, :], other=0.0)
        value += tl.sum(part * read[None, :], axis=1)
    inverted = tl.load(upper + line * (stride + 1), mask=mine, other=0.0)
    for turn in range(0, width):
        k = width - 1 - turn
        if not TRANSPOSED:
            value = tl.where(line == k, value * inverted, value)
        pivot = tl.sum(tl.where(line == k, value, 0.0))
        value += pivot * tl.sum(tl.where(tl.arange(0, PIVOTS)[None, :] == k, block, 0.0), axis=1)
    tl.debug_barrier()  # several threads hold the same numbers: all have read before one writes
    tl.store(x + first + line, value, mask=mine)
    tl.store(out + tl.load(sequence + first + line, mask=mine, other=0) * heads, value, mask=mine)


@triton.jit
def substitute_kernel(begins, ends, table, children, inverse, beyond, sequence, panels, right, x, handed, out, total, nodes,
                      entries, heads, DOWN: tl.constexpr, UP: tl.constexpr, TRANSPOSED: tl.constexpr):  # fmt: skip
    """All fronts of a task, down and up; ``right`` and ``out`` are [R, N, H], x is [R, H, N] by position."""
    task, lane = tl.program_id(0), tl.program_id(1).to(tl.int64)  # lane: side * heads + head
    begin, end = tl.load(begins + task), tl.load(ends + task)
    table_of_side = lane // heads * nodes * heads + lane % heads
    right += table_of_side
    out += table_of_side
    panels += lane % heads * total
    x += lane * nodes
    handed += lane * entries
    if DOWN:
        for front in range(begin, end):
            go_down(table, front, children, inverse, panels, sequence, right, x, handed, heads, TRANSPOSED)
            tl.debug_barrier()
    if UP:
        for turn in range(0, end - begin):
            go_up(table, end - 1 - turn, beyond, panels, sequence, x, out, heads, TRANSPOSED)
            tl.debug_barrier()


substitute = Kernel(substitute_kernel)
