"""Solves with the factors of ``cpu_multifrontal``: I - W = L U with the panels of U's rows and of L's columns, both row by row.

    (I - W) x = b       down the fronts with L's panels, back up with U's
    (I - W)^T y = g     the same with the two panels exchanged, because (L U)^T = U^T L^T

Going down a pivot adds its multiples to later rows, going up it adds up what it reads from them. The signs are such that both add.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from convergent.kernels.cpu_fronts import FIRST, PANEL, POINTER, ROWS, STRIDE, WIDTH, rounded
from convergent.kernels.cpu_panels import HIGH, LONG, dots_of_row, dots_of_rows, product_of_row, product_of_vector
from convergent.kernels.cpu_rows import kernel, team
from convergent.kernels.lanes import at, fma, load, load_some, splat, store, store_some, take, width


@kernel
def empty_vectors(narrow, wide, segments, table, sides):
    """Room for the right-hand sides of a graph, by position, and for what a front reads or adds."""
    nodes = rows = 0
    for graph in range(len(segments) - 1):
        nodes = max(nodes, at(segments, graph + 1) - at(segments, graph))
    for front in range(len(table) - 1):
        rows = max(rows, table[front, ROWS])
    if not sides:
        nodes = rows = 0
    return np.empty(nodes * sides * width(narrow), np.float64), np.empty((rows + 1) * width(narrow) + 2 * width(wide), np.float64)


@kernel
def go_down(narrow, wide, front, table, index, stride, numbers, panel, upper, scaled, x, begin, shared):
    """Add the multiples of a front's pivots to later rows; ``scaled``: the pivots are divided by the diagonal first."""
    h, v, pivots = width(narrow), width(wide), table[front, WIDTH]
    step = stride * h
    for k in range(pivots):
        value = load(narrow, x, begin + k * h)
        if scaled:
            value = value * load(narrow, numbers, upper + k * step + k * h)
            store(narrow, x, begin + k * h, value)
        for other in range(k + 1, pivots):
            factor = load(narrow, numbers, panel + k * step + other * h)
            store(narrow, x, begin + other * h, fma(factor, value, load(narrow, x, begin + other * h)))
    others = table[front, ROWS] - pivots
    source, c = panel + pivots * h, 0
    while c < others * h:
        if c + LONG * v <= others * h:
            product_of_row(narrow, wide, x, begin, h, h, numbers, source + c, step, pivots, shared, c, 0)
            c += LONG * v
        else:
            product_of_vector(narrow, wide, x, begin, h, h, numbers, source + c, step, pivots, shared, c, 0)
            c += v
    entry = table[front, POINTER]
    origin = begin - table[front, FIRST] * h
    for c in range(others):
        spot = origin + at(index, entry + c) * h
        store(narrow, x, spot, load(narrow, x, spot) + load(narrow, shared, c * h))


@kernel
def go_up(narrow, wide, front, table, index, stride, numbers, panel, upper, scaled, x, begin, shared):
    """Add to a front's pivots what they read from later rows; ``scaled``: divide the sums by the diagonal."""
    h, v, pivots = width(narrow), width(wide), table[front, WIDTH]
    step, others, entry = stride * h, table[front, ROWS] - pivots, table[front, POINTER]
    origin = begin - table[front, FIRST] * h
    for c in range(others):
        store(narrow, shared, c * h, load(narrow, x, origin + at(index, entry + c) * h))
    for c in range(others, rounded(others, v // h)):
        store(narrow, shared, c * h, splat(narrow, 0.0))
    vectors, k = rounded(others, v // h) * h // v, 0
    while k < pivots:
        source, out = panel + k * step + pivots * h, begin + k * h
        if k + HIGH <= pivots:
            dots_of_rows(narrow, wide, numbers, source, step, shared, 0, vectors, x, out)
            k += HIGH
        else:
            dots_of_row(narrow, wide, numbers, source, step, shared, 0, vectors, x, out)
            k += 1
    for k in range(pivots - 1, -1, -1):
        value = load(narrow, x, begin + k * h)
        for other in range(k + 1, pivots):
            value = fma(load(narrow, numbers, panel + k * step + other * h), load(narrow, x, begin + other * h), value)
        if scaled:
            value = value * load(narrow, numbers, upper + k * step + k * h)
        store(narrow, x, begin + k * h, value)


@kernel
def solve_graph(
    narrow, wide, first, last, low, high, head, table, index, sequence, layout, base, numbers, transposed, rights, out, x, shared
):  # fmt: skip
    """All right-hand sides of a graph and a block of heads."""
    h, nodes = width(narrow), last - first
    sides, every, heads = rights.shape
    count = heads - head
    for side in range(sides):
        for k in range(nodes):
            place = (side * every + first + at(sequence, first + k)) * heads + head
            store(narrow, x, (side * nodes + k) * h, load_some(narrow, rights, place, count))
    for turn in range(2 * (high - low)):
        front = low + turn if turn < high - low else 2 * high - low - 1 - turn
        stride = layout[front, STRIDE]
        upper = base + layout[front, PANEL] * h
        lower = upper + table[front, WIDTH] * stride * h
        panel = upper if (turn < high - low) == transposed else lower
        for side in range(sides):
            begin = (side * nodes + table[front, FIRST] - first) * h
            if turn < high - low:
                go_down(narrow, wide, front, table, index, stride, numbers, panel, upper, transposed, x, begin, shared)
            else:
                go_up(narrow, wide, front, table, index, stride, numbers, panel, upper, not transposed, x, begin, shared)
    for side in range(sides):
        for k in range(nodes):
            place = (side * every + first + at(sequence, first + k)) * heads + head
            store_some(narrow, out, place, load(narrow, x, (side * nodes + k) * h), count)


@kernel
def solve_worker(narrow, wide, counter, segments, bounds, table, index, sequence, layout, numbers, transposed, rights, out):
    sides, _, heads = rights.shape
    h, graphs = width(narrow), len(segments) - 1
    blocks = (heads + h - 1) // h
    total = layout[len(layout) - 1, PANEL]
    x, shared = empty_vectors(narrow, wide, segments, table, sides)
    task = take(counter)
    while task < graphs * blocks:
        graph, head = task // blocks, task % blocks * h
        first, last = at(segments, graph), at(segments, graph + 1)
        args = (table, index, sequence, layout, task % blocks * total * h, numbers, transposed, rights, out, x, shared)
        solve_graph(narrow, wide, first, last, bounds[graph], bounds[graph + 1], head, *args)
        task = take(counter)


@team
def solve_team(threads, narrow, wide, counter, args):
    for _ in prange(threads):
        solve_worker(narrow, wide, counter, *args)
