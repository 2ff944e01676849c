"""Numeric elimination, front by front: a graph and a block of heads is a task of one thread.

The panels of all fronts of a graph are cleared and its weights added where they belong. Then, children before parents, a front adds
what its children left, eliminates its pivots and leaves the product of its panels, plus what its children have beyond its pivots,
to its parent. In lanes without a negative weight the diagonal is never read: a pivot is the sum of its row and its slack.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from convergent.kernels.cpu_fronts import CHILD, PANEL, POINTER, ROWS, SIBLING, SQUARE, STRIDE, WIDTH, rounded
from convergent.kernels.cpu_panels import (
    HIGH,
    LONG,
    fold,
    product_of_columns,
    product_of_row,
    product_of_tile,
    product_of_vector,
    repeat,
)
from convergent.kernels.cpu_rows import kernel, team
from convergent.kernels.cpu_substitution import empty_vectors, solve_graph
from convergent.kernels.lanes import (
    at,
    fma,
    load,
    load_some,
    magnitude,
    misalignment,
    splat,
    store,
    store_some,
    take,
    where_at_most,
    where_negative,
    width,
)

ROUNDING = 1e-14  # a pivot that is smaller than this part of what it is the difference of is no more than rounding
LARGEST = 1e300  # larger pivots are infinite, or will be


# --- numbers into panels ---


@kernel
def clear(wide, numbers, first, last):
    for place in range(first, last, width(wide)):
        store(wide, numbers, place, splat(wide, 0.0))


@kernel
def add_weights(narrow, first, last, head, base, pointer, order, permuted, weight, place, corner, numbers):
    """Add the weights of a graph to its panels, their exact slacks, and -1 on the diagonal; returns which lanes have signs."""
    heads, h = weight.shape[1], width(narrow)
    one, signed = splat(narrow, 1.0), splat(narrow, 0.0)
    for row in range(first, last):
        total, rest, crumbs = one, splat(narrow, 0.0), splat(narrow, 0.0)
        for position in range(at(pointer, row), at(pointer, row + 1)):
            edge = at(order, position) if permuted else position
            value = load_some(narrow, weight, edge * heads + head, heads - head)
            signed = where_negative(value, one, signed)
            spot = base + at(place, position) * h
            store(narrow, numbers, spot, load(narrow, numbers, spot) + value)
            less = total - value
            virtual = less - total
            error = (total - (less - virtual)) - (value + virtual)
            total = less
            more = rest + error
            virtual = more - rest
            crumbs = crumbs + ((rest - (more - virtual)) + (error - virtual))
            rest = more
        spot = base + at(corner, 2 * row) * h
        store(narrow, numbers, spot, total + rest + crumbs)
        spot = base + at(corner, 2 * row + 1) * h
        store(narrow, numbers, spot, load(narrow, numbers, spot) - one)
    return signed


# --- from children to parents ---


@kernel
def add_row(narrow, wide, source, s, into, begin, low, high, out, o):
    """out[into[c]] += source[c] for low <= c < high."""
    h, v = width(narrow), width(wide)
    if high > low and at(into, begin + high - 1) - at(into, begin + low) == high - 1 - low:  # no gaps
        place, end, shift = s + low * h, s + high * h, o + at(into, begin + low) * h - s - low * h
        while place + v <= end:
            store(wide, out, place + shift, load(wide, out, place + shift) + load(wide, source, place))
            place += v
        while place < end:
            store(narrow, out, place + shift, load(narrow, out, place + shift) + load(narrow, source, place))
            place += h
        return
    for c in range(low, high):
        spot = o + at(into, begin + c) * h
        store(narrow, out, spot, load(narrow, out, spot) + load(narrow, source, s + c * h))


@kernel
def pivots_of(table, into, front, parent_width):
    """How many rows that a front leaves are pivots of its parent: they come first."""
    low, high = table[front, POINTER], table[front + 1, POINTER]
    begin = low
    while low < high:
        middle = (low + high) // 2
        if at(into, middle) < parent_width:
            low = middle + 1
        else:
            high = middle
    return low - begin


@kernel
def add_to_panels(narrow, wide, group, table, into, layout, child, parent, base, squares, numbers):
    """What a child leaves in rows and columns of its parent's pivots."""
    h = width(narrow)
    begin = table[child, POINTER]
    others = table[child + 1, POINTER] - begin
    span, rows, stride = table[parent, WIDTH], table[parent, ROWS], layout[parent, STRIDE]
    square, step = layout[child, SQUARE] * h, rounded(others + 1, group) * h
    upper = base + layout[parent, PANEL] * h
    lower = upper + span * stride * h
    pivots = pivots_of(table, into, child, span)
    for r in range(pivots):
        source, out = square + r * step, upper + at(into, begin + r) * stride * h
        add_row(narrow, wide, squares, source, into, begin, 0, others, numbers, out)
        slack = out + rows * h
        store(narrow, numbers, slack, load(narrow, numbers, slack) + load(narrow, squares, source + others * h))
    for c in range(pivots):
        out = lower + at(into, begin + c) * stride * h
        for r in range(pivots, others):
            spot = out + at(into, begin + r) * h
            value = load(narrow, squares, square + r * step + c * h)
            store(narrow, numbers, spot, load(narrow, numbers, spot) + value)


@kernel
def add_to_square(narrow, wide, group, table, into, layout, child, parent, squares):
    """What a child leaves beyond the pivots of its parent."""
    h = width(narrow)
    begin = table[child, POINTER]
    others = table[child + 1, POINTER] - begin
    span = table[parent, WIDTH]
    left = table[parent, ROWS] - span
    source, step = layout[child, SQUARE] * h, rounded(others + 1, group) * h
    square, parent_step = layout[parent, SQUARE] * h, rounded(left + 1, group) * h
    pivots = pivots_of(table, into, child, span)
    for r in range(pivots, others):
        out = square + (at(into, begin + r) - span) * parent_step
        add_row(narrow, wide, squares, source + r * step, into, begin, pivots, others, squares, out - span * h)
        slack = out + left * h
        store(narrow, squares, slack, load(narrow, squares, slack) + load(narrow, squares, source + r * step + others * h))


# --- one front ---


@kernel
def add_multiple(wide, factor, numbers, source, out, begin, end):
    """out += factor * source from ``begin`` to ``end``, in whole vectors."""
    for place in range(begin, end, width(wide)):
        value = fma(factor, load(wide, numbers, source + place), load(wide, numbers, out + place))
        store(wide, numbers, out + place, value)


@kernel
def row_sum(narrow, wide, numbers, begin, end):
    """The sum of numbers from ``begin`` to ``end``, the end of a row."""
    columns, total = splat(wide, 0.0), splat(narrow, 0.0)
    while end - width(wide) >= begin:
        end -= width(wide)
        columns = columns + load(wide, numbers, end)
    for place in range(begin, end, width(narrow)):
        total = total + load(narrow, numbers, place)
    return total + fold(narrow, columns)


@kernel
def eliminate_pivots(narrow, wide, numbers, upper, pivots, rows, stride, signed, wrong):
    """Factorise the panels of a front in place; diagonals of U are kept inverted. Returns which lanes had a pivot that is none."""
    h, v, step = width(narrow), width(wide), stride * width(narrow)
    lower = upper + pivots * step
    one, half, beyond = splat(narrow, 1.0), splat(narrow, 0.5), pivots * h // v * v
    for k in range(pivots):
        row, column = upper + k * step, lower + k * step
        total = row_sum(narrow, wide, numbers, row + (k + 1) * h, row + step)
        slack = magnitude(load(narrow, numbers, row + rows * h))
        pivot = where_at_most(signed, half, total, splat(narrow, 0.0) - load(narrow, numbers, row + k * h))
        least = where_at_most(signed, half, slack, one) * splat(narrow, ROUNDING)
        wrong = where_at_most(pivot, least, one, wrong)
        wrong = where_at_most(pivot, splat(narrow, LARGEST), wrong, one)
        inverse = one / pivot
        store(narrow, numbers, row + k * h, inverse)
        scale = repeat(wide, inverse)
        # vectors may begin before the first column that matters: what lies there has been read
        for place in range(column + beyond, column + step, v):
            store(wide, numbers, place, load(wide, numbers, place) * scale)
        for other in range(k + 1, pivots):
            factor = repeat(wide, load(narrow, numbers, row + other * h))
            add_multiple(wide, factor, numbers, column, lower + other * step, beyond, step)
        for other in range(k + 1, pivots):
            out = upper + other * step
            factor = load(narrow, numbers, out + k * h) * inverse
            store(narrow, numbers, column + other * h, factor)
            add_multiple(wide, repeat(wide, factor), numbers, row, out, (k + 1) * h // v * v, step)
    return wrong


@kernel
def multiply_panels(narrow, wide, group, numbers, upper, pivots, others, stride, squares, square):
    """The square of a front: column panel times row panel, slacks along."""
    h, v, step = width(narrow), width(wide), stride * width(narrow)
    left, right = upper + pivots * step + pivots * h, upper + pivots * h
    out_step = rounded(others + 1, group) * h
    column = 0
    while column < out_step:
        full = column + LONG * v <= out_step
        r, row = right + column, 0
        while row < others:
            out, source = square + row * out_step + column, left + row * h
            if row + HIGH <= others:
                if full:
                    product_of_tile(narrow, wide, numbers, source, h, step, numbers, r, step, pivots, squares, out, out_step)
                else:
                    product_of_columns(narrow, wide, numbers, source, h, step, numbers, r, step, pivots, squares, out, out_step)
                row += HIGH
            else:
                if full:
                    product_of_row(narrow, wide, numbers, source, h, step, numbers, r, step, pivots, squares, out, out_step)
                else:
                    product_of_vector(narrow, wide, numbers, source, h, step, numbers, r, step, pivots, squares, out, out_step)
                row += 1
        column += LONG * v if full else v


@kernel
def factor_graph(narrow, wide, low, high, table, into, layout, base, signed, squares, numbers):
    group = width(wide) // width(narrow)
    wrong = splat(narrow, 0.0)
    for front in range(low, high):
        pivots, rows, stride = table[front, WIDTH], table[front, ROWS], layout[front, STRIDE]
        upper = base + layout[front, PANEL] * width(narrow)
        child = table[front, CHILD]
        while child >= 0:
            add_to_panels(narrow, wide, group, table, into, layout, child, front, base, squares, numbers)
            child = table[child, SIBLING]
        wrong = eliminate_pivots(narrow, wide, numbers, upper, pivots, rows, stride, signed, wrong)
        if rows > pivots:
            square = layout[front, SQUARE] * width(narrow)
            multiply_panels(narrow, wide, group, numbers, upper, pivots, rows - pivots, stride, squares, square)
            child = table[front, CHILD]
            while child >= 0:
                add_to_square(narrow, wide, group, table, into, layout, child, front, squares)
                child = table[child, SIBLING]
    return wrong


@kernel
def factor_worker(
    narrow, wide, counter, segments, pointer, order, permuted, weight, bounds, table, index, into, sequence, layout, room, place,
    corner, numbers, bad, rights, out,
):  # fmt: skip
    """Factorise, and solve for right-hand sides while the factors are in the cache."""
    heads, h, graphs, sides = weight.shape[1], width(narrow), len(segments) - 1, len(rights)
    blocks = (heads + h - 1) // h
    total, most = layout[len(layout) - 1, PANEL], 0
    for graph in range(graphs):
        most = max(most, room[graph])
    squares = np.empty(most * h + 2 * width(wide) + 8, np.float64)
    squares = squares[misalignment(squares) :]
    x, shared = empty_vectors(narrow, wide, segments, table, sides)
    task = take(counter)
    while task < graphs * blocks:
        graph, head = task // blocks, task % blocks * h
        first, last = at(segments, graph), at(segments, graph + 1)
        low, high = bounds[graph], bounds[graph + 1]
        base = task % blocks * total * h
        clear(wide, numbers, base + layout[low, PANEL] * h, base + layout[high, PANEL] * h)
        signed = add_weights(narrow, first, last, head, base, pointer, order, permuted, weight, place, corner, numbers)
        wrong = factor_graph(narrow, wide, low, high, table, into, layout, base, signed, squares, numbers)
        store_some(narrow, bad, graph * heads + head, wrong, heads - head)
        if sides:
            args = (table, index, sequence, layout, base, numbers, False, rights, out, x, shared)
            solve_graph(narrow, wide, first, last, low, high, head, *args)
        task = take(counter)


@team
def factor_team(threads, narrow, wide, counter, args):
    for _ in prange(threads):
        factor_worker(narrow, wide, counter, *args)
