"""Direct solves of small graphs: a dense LU per graph, with the heads side by side in vector registers.

No pivoting: I - W is diagonally dominant in its rows or in its columns.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from convergent.kernels.cpu_blocks import extent, pack_nodes, unpack_nodes
from convergent.kernels.cpu_rows import kernel, team
from convergent.kernels.lanes import at, fma, load, load_some, misalignment, put, splat, store, take, width


@kernel
def fill_dense(lanes, first, last, head, pointer, column, order, permuted, weight, matrix):
    """I - W of a block of heads, row by row."""
    w, heads, nodes = width(lanes), weight.shape[1], last - first
    for place in range(nodes * nodes * w):
        put(matrix, place, 0.0)
    for row in range(nodes):
        store(lanes, matrix, row * (nodes + 1) * w, splat(lanes, 1.0))
        for position in range(at(pointer, first + row), at(pointer, first + row + 1)):
            edge = at(order, position) if permuted else position
            place = (row * nodes + at(column, position) - first) * w
            value = load_some(lanes, weight, edge * heads + head, heads - head)
            store(lanes, matrix, place, load(lanes, matrix, place) - value)


@kernel
def eliminate(lanes, nodes, matrix, x):
    """Row by row: the row at hand stays in the first cache while the finished ones stream past. Diagonals are kept inverted."""
    w = width(lanes)
    for row in range(nodes):
        mine = row * nodes
        value = load(lanes, x, row * w)
        for pivot in range(row):
            factor = load(lanes, matrix, (mine + pivot) * w) * load(lanes, matrix, pivot * (nodes + 1) * w)
            negative = splat(lanes, 0.0) - factor
            theirs = pivot * nodes
            for place in range(pivot + 1, nodes):
                updated = fma(negative, load(lanes, matrix, (theirs + place) * w), load(lanes, matrix, (mine + place) * w))
                store(lanes, matrix, (mine + place) * w, updated)
            value = fma(negative, load(lanes, x, pivot * w), value)
        store(lanes, x, row * w, value)
        diagonal = (mine + row) * w
        store(lanes, matrix, diagonal, splat(lanes, 1.0) / load(lanes, matrix, diagonal))


@kernel
def substitute(lanes, nodes, matrix, x):
    w = width(lanes)
    for row in range(nodes - 1, -1, -1):
        total = splat(lanes, 0.0)
        for place in range(row + 1, nodes):
            total = fma(load(lanes, matrix, (row * nodes + place) * w), load(lanes, x, place * w), total)
        store(lanes, x, row * w, (load(lanes, x, row * w) - total) * load(lanes, matrix, row * (nodes + 1) * w))


@kernel
def lu_worker(lanes, counter, graphs, segments, pointer, column, order, permuted, weight, bias, out):
    w, heads = width(lanes), bias.shape[1]
    blocks = (heads + w - 1) // w
    nodes, _ = extent(segments, pointer, graphs)
    matrix = np.empty(nodes * nodes * w + 64, bias.dtype)
    matrix = matrix[misalignment(matrix) :]
    x = np.empty(nodes * w, bias.dtype)
    task = take(counter)
    while task < len(graphs) * blocks:
        graph, head = graphs[task // blocks], task % blocks * w
        first, last = at(segments, graph), at(segments, graph + 1)
        fill_dense(lanes, first, last, head, pointer, column, order, permuted, weight, matrix)
        pack_nodes(lanes, first, last, head, bias, x, 0)
        eliminate(lanes, last - first, matrix, x)
        substitute(lanes, last - first, matrix, x)
        unpack_nodes(lanes, first, last, head, x, 0, out)
        task = take(counter)


@team
def lu_team(threads, lanes, counter, args):
    for _ in prange(threads):
        lu_worker(lanes, counter, *args)
