"""Triton kernels that factorise I - W front by front; ``cuda_schedule`` makes the tables that they read.

Every head has a plane of its own. A small front is a tile in the registers of one program, which goes through a whole
subtree of fronts; a larger one is eliminated in place by one program, and its square multiplied out by as many as it has
tiles. Children are gathered: a front knows of each of its rows which row of each child it is, so no sum depends on an order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from convergent.kernels import cuda_schedule, reference_elimination
from convergent.kernels.cuda_launch import Kernel

# columns of the table of fronts
FIRST, WIDTH, ROWS, PANEL, SQUARE, POINTER, CHILDREN, INVERSE, GRAPH, FIELDS = (tl.constexpr(index) for index in range(10))
ROUNDING = tl.constexpr(reference_elimination.ROUNDING)
HUGE = tl.constexpr(1e300)
PIVOTS = tl.constexpr(32)  # at least as many as a front has
CHUNK = tl.constexpr(64)  # columns of a tile of a large front
SIDE = tl.constexpr(cuda_schedule.SIDE)


@triton.jit
def field(table, front, NAME: tl.constexpr):
    return tl.load(table + front * FIELDS + NAME)


@triton.jit
def extent(table, front):
    """The pivots and the rows of a front."""
    return field(table, front, WIDTH).to(tl.int32), field(table, front, ROWS).to(tl.int32)


@triton.jit
def checked(pivot, least, wrong):
    """Whether a pivot, or one before it, is none."""
    return wrong | (pivot <= least) | (pivot != pivot) | (pivot > HUGE)


# --- weights into panels ---


@triton.jit
def scatter_kernel(pointer, edges, place, weight, panels, cells, heads, total, R: tl.constexpr, B: tl.constexpr):
    """The weights of parallel edges, added up in their order, to their place in every plane."""
    cell = tl.program_id(0) * R + tl.arange(0, R)
    head = tl.program_id(1) * B + tl.arange(0, B)
    begin = tl.load(pointer + cell, mask=cell < cells, other=0)
    count = tl.load(pointer + cell + 1, mask=cell < cells, other=0) - begin
    sums = tl.zeros([R, B], tl.float64)
    for step in range(0, tl.max(count)):
        inside = step < count
        edge = tl.load(edges + begin + step, mask=inside, other=0).to(tl.int64)
        mask = inside[:, None] & (head < heads)[None, :]
        sums += tl.load(weight + edge[:, None] * heads + head[None, :], mask=mask, other=0.0).to(tl.float64)
    spot = tl.load(place + cell, mask=cell < cells, other=0)[:, None] + head.to(tl.int64)[None, :] * total
    tl.store(panels + spot, sums, mask=(cell < cells)[:, None] & (head < heads)[None, :])


@triton.jit
def slack_kernel(pointer, order, graph_of, corner, weight, panels, signed, nodes, heads, total, PERMUTED: tl.constexpr,
                 R: tl.constexpr, B: tl.constexpr):  # fmt: skip
    """1 - the sum of every row, in a sum of three parts that loses nothing; -1 on the diagonal; which heads have signs."""
    row = tl.program_id(0) * R + tl.arange(0, R)
    head = tl.program_id(1) * B + tl.arange(0, B)
    alive, lanes = row < nodes, head < heads
    begin = tl.load(pointer + row, mask=alive, other=0)
    count = tl.load(pointer + row + 1, mask=alive, other=0) - begin
    sums, rest, crumbs = tl.zeros([R, B], tl.float64) + 1.0, tl.zeros([R, B], tl.float64), tl.zeros([R, B], tl.float64)
    negative = tl.zeros([R, B], tl.int32)
    for step in range(0, tl.max(count)):
        inside = step < count
        edge = begin + step
        if PERMUTED:
            edge = tl.load(order + edge, mask=inside, other=0)
        mask = inside[:, None] & lanes[None, :]
        value = tl.load(weight + edge.to(tl.int64)[:, None] * heads + head[None, :], mask=mask, other=0.0).to(tl.float64)
        negative = negative | (value < 0).to(tl.int32)
        less = sums - value
        virtual = less - sums
        error = (sums - (less - virtual)) - (value + virtual)
        sums = less
        more = rest + error
        virtual = more - rest
        crumbs += (rest - (more - virtual)) + (error - virtual)
        rest = more
    mask = alive[:, None] & lanes[None, :]
    plane = head.to(tl.int64)[None, :] * total
    spot = tl.load(corner + 2 * row, mask=alive, other=0)[:, None] + plane
    tl.store(panels + spot, sums + rest + crumbs, mask=mask)
    spot = tl.load(corner + 2 * row + 1, mask=alive, other=0)[:, None] + plane
    tl.store(panels + spot, tl.load(panels + spot, mask=mask, other=0.0) - 1.0, mask=mask)
    lane = tl.load(graph_of + row, mask=alive, other=0)[:, None] * heads + head[None, :]
    tl.atomic_max(signed + lane, negative, mask=mask & (negative > 0))


# --- fronts in registers ---


@triton.jit
def load_front(table, front, children, inverse, upper, squares, width, rows, M: tl.constexpr):
    """A front with what its children leave: [M, M], and its slacks [M]."""
    i, j = tl.arange(0, M)[:, None], tl.arange(0, M)[None, :]
    line = tl.arange(0, M)
    stride = rows + 1
    own = (i < rows) & (j < rows) & ((i < width) | (j < width))
    spot = tl.where(i < width, i * stride + j, (width + j) * stride + i)
    tile = tl.load(upper + spot, mask=own, other=0.0)
    slack = tl.load(upper + line * stride + rows, mask=line < width, other=0.0)
    for index in range(field(table, front, CHILDREN), field(table, front + 1, CHILDREN)):
        child = tl.load(children + index)
        width_of_child, rows_of_child = extent(table, child)
        left = rows_of_child - width_of_child
        square, step = squares + field(table, child, SQUARE), left + 1
        where = inverse + field(table, child, INVERSE)
        r = tl.load(where + i, mask=i < rows, other=-1)
        c = tl.load(where + j, mask=j < rows, other=-1)
        tile += tl.load(square + r * step + c, mask=(r >= 0) & (c >= 0), other=0.0)
        r = tl.load(where + line, mask=line < rows, other=-1)
        slack += tl.load(square + r * step + left, mask=r >= 0, other=0.0)
    return tile, slack


@triton.jit
def tile_front(table, front, children, inverse, panels, squares, plane, area, signs, M: tl.constexpr):
    """Eliminate the pivots of a front of at most M rows; whether one is none."""
    width, rows = extent(table, front)
    upper, squares = panels + plane + field(table, front, PANEL), squares + area
    tile, slack = load_front(table, front, children, inverse, upper, squares, width, rows, M)
    line = tl.arange(0, M)
    i, j = line[:, None], line[None, :]
    wrong = width < 0
    for k in range(0, width):
        row = tl.sum(tl.where(i == k, tile, 0.0), axis=0)
        column = tl.sum(tl.where(j == k, tile, 0.0), axis=1)
        loss = tl.sum(tl.where(line == k, slack, 0.0))
        row = tl.where(line == k, -row, row)
        pivot = tl.where(signs, tl.sum(tl.where(line == k, row, 0.0)), loss + tl.sum(tl.where(line > k, row, 0.0)))
        wrong = checked(pivot, ROUNDING * tl.where(signs, 1.0, tl.abs(loss)), wrong)
        factor = tl.where(line > k, column / pivot, 0.0)
        tile += factor[:, None] * tl.where(line > k, row, 0.0)[None, :]
        tile = tl.where((j == k) & (i > k), factor[:, None], tile)
        tile = tl.where((j == k) & (i == k), 1 / pivot, tile)
        slack += factor * loss
    stride, left = rows + 1, rows - width
    tl.store(upper + i * stride + j, tile, mask=(i < width) & (j < rows) & (j >= i))
    tl.store(upper + (width + j) * stride + i, tile, mask=(j < width) & (i < rows) & (i > j))
    if left > 0:
        square, beyond = squares + field(table, front, SQUARE), (i >= width) & (i < rows)
        tl.store(square + (i - width) * (left + 1) + j - width, tile, mask=beyond & (j >= width) & (j < rows))
        tl.store(square + (line - width) * (left + 1) + left, slack, mask=(line >= width) & (line < rows))
    return wrong


@triton.jit
def subtrees_kernel(begins, ends, table, children, inverse, panels, squares, signed, bad, total, area, heads,
                    M: tl.constexpr):  # fmt: skip
    """All fronts of a subtree, one after the other, children before parents; none has more than M rows."""
    task, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    begin, end = tl.load(begins + task), tl.load(ends + task)
    lane = field(table, begin, GRAPH) * heads + head
    signs = tl.load(signed + lane) != 0
    wrong = begin < 0
    for front in range(begin, end):
        rows = field(table, front, ROWS)
        if rows <= M // 2:
            wrong = wrong | tile_front(table, front, children, inverse, panels, squares, head * total, head * area, signs, M // 2)
        else:
            wrong = wrong | tile_front(table, front, children, inverse, panels, squares, head * total, head * area, signs, M)
        tl.debug_barrier()  # its square is read by its parent
    tl.atomic_max(bad + lane, wrong.to(tl.int32))


# --- large fronts, in memory ---


@triton.jit
def gather_panels(table, front, children, inverse, upper, squares, width, rows):
    """Add what the children leave in rows and columns of the pivots."""
    stride = rows + 1
    k = tl.arange(0, PIVOTS)[:, None]
    for index in range(field(table, front, CHILDREN), field(table, front + 1, CHILDREN)):
        child = tl.load(children + index)
        width_of_child, rows_of_child = extent(table, child)
        left = rows_of_child - width_of_child
        square, step = squares + field(table, child, SQUARE), left + 1
        where = inverse + field(table, child, INVERSE)
        mine = tl.load(where + k, mask=k < width, other=-1)
        for start in range(0, rows + 1, CHUNK):
            c = (start + tl.arange(0, CHUNK))[None, :]
            theirs = tl.load(where + c, mask=c < rows, other=-1)
            column = tl.where(c == rows, left, theirs)  # the slack
            mask = (mine >= 0) & (column >= 0)
            spot = upper + k * stride + c
            more = tl.load(square + mine * step + column, mask=mask, other=0.0)
            tl.store(spot, tl.load(spot, mask=mask, other=0.0) + more, mask=mask)
            mask = (mine >= 0) & (theirs >= 0) & (c >= width)
            spot = upper + (width + k) * stride + c
            more = tl.load(square + theirs * step + mine, mask=mask, other=0.0)
            tl.store(spot, tl.load(spot, mask=mask, other=0.0) + more, mask=mask)
        tl.debug_barrier()


@triton.jit
def panels_kernel(fronts, table, children, inverse, panels, squares, signed, bad, total, area, heads):
    """Eliminate the pivots of a front of any size in its panels."""
    front, head = tl.load(fronts + tl.program_id(0)), tl.program_id(1).to(tl.int64)
    width, rows = extent(table, front)
    upper, stride = panels + head * total + field(table, front, PANEL), rows + 1
    lower = upper + width * stride
    lane = field(table, front, GRAPH) * heads + head
    signs = tl.load(signed + lane) != 0
    gather_panels(table, front, children, inverse, upper, squares + head * area, width, rows)
    line = tl.arange(0, PIVOTS)
    wrong = width < 0
    for k in range(0, width):
        tl.debug_barrier()
        parts = tl.zeros([CHUNK], tl.float64)
        for start in range(k + 1, rows + 1, CHUNK):
            c = start + tl.arange(0, CHUNK)
            parts += tl.load(upper + k * stride + c, mask=c <= rows, other=0.0)
        pivot = tl.where(signs, -tl.load(upper + k * stride + k), tl.sum(parts))
        loss = tl.load(upper + k * stride + rows)
        wrong = checked(pivot, ROUNDING * tl.where(signs, 1.0, tl.abs(loss)), wrong)
        later = (line > k) & (line < width)
        factor = tl.load(upper + line * stride + k, mask=later, other=0.0) / pivot
        across = tl.load(upper + k * stride + line, mask=later, other=0.0)
        tl.debug_barrier()
        tl.store(upper + k * stride + k, 1 / pivot)
        tl.store(lower + k * stride + line, factor, mask=later)
        for start in range(k + 1, rows + 1, CHUNK):
            c = start + tl.arange(0, CHUNK)
            row = tl.load(upper + k * stride + c, mask=c <= rows, other=0.0)
            mask = later[:, None] & (c <= rows)[None, :]
            spot = upper + line[:, None] * stride + c[None, :]
            tl.store(spot, tl.load(spot, mask=mask, other=0.0) + factor[:, None] * row[None, :], mask=mask)
        for start in range(width, rows, CHUNK):
            c = start + tl.arange(0, CHUNK)
            column = tl.load(lower + k * stride + c, mask=c < rows, other=0.0) / pivot
            tl.debug_barrier()  # several threads hold the same numbers: all have read before one writes
            tl.store(lower + k * stride + c, column, mask=c < rows)
            mask = later[:, None] & (c < rows)[None, :]
            spot = lower + line[:, None] * stride + c[None, :]
            tl.store(spot, tl.load(spot, mask=mask, other=0.0) + across[:, None] * column[None, :], mask=mask)
    tl.atomic_max(bad + lane, wrong.to(tl.int32))


@triton.jit
def squares_kernel(tiles, table, children, inverse, panels, squares, total, area):
    """One tile of a square: the product of the panels, and what the children leave there."""
    tile, head = tiles + 3 * tl.program_id(0), tl.program_id(1).to(tl.int64)
    front, top, begin = tl.load(tile), tl.load(tile + 1), tl.load(tile + 2)
    width, rows = extent(table, front)
    left, stride = rows - width, rows + 1
    upper = panels + head * total + field(table, front, PANEL)
    lower = upper + width * stride
    r, c = top + tl.arange(0, SIDE), begin + tl.arange(0, SIDE)
    sums = tl.zeros([SIDE, SIDE], tl.float64)
    for k in range(0, width):
        factor = tl.load(lower + k * stride + width + r, mask=r < left, other=0.0)
        row = tl.load(upper + k * stride + width + c, mask=c <= left, other=0.0)
        sums += factor[:, None] * row[None, :]
    for index in range(field(table, front, CHILDREN), field(table, front + 1, CHILDREN)):
        child = tl.load(children + index)
        width_of_child, rows_of_child = extent(table, child)
        remains = rows_of_child - width_of_child
        square = squares + head * area + field(table, child, SQUARE)
        where = inverse + field(table, child, INVERSE) + width
        theirs = tl.load(where + r, mask=r < left, other=-1)[:, None]
        column = tl.where(c == left, remains, tl.load(where + c, mask=c < left, other=-1))[None, :]
        sums += tl.load(square + theirs * (remains + 1) + column, mask=(theirs >= 0) & (column >= 0), other=0.0)
    spot = squares + head * area + field(table, front, SQUARE) + r[:, None] * (left + 1) + c[None, :]
    tl.store(spot, sums, mask=(r < left)[:, None] & (c <= left)[None, :])


scatter, slacks, subtrees = Kernel(scatter_kernel), Kernel(slack_kernel), Kernel(subtrees_kernel)
large_panels, large_squares = Kernel(panels_kernel), Kernel(squares_kernel)
