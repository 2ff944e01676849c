"""Kernels that go through rows, edges or nodes once, from memory.

Each is a worker: it takes chunk after chunk from a counter until none is left. One worker is the serial kernel; a team is as
many workers as there are threads on one counter, so that a thread that loses its core does not hold up the others. The
chunks, and with them every result, do not depend on the number of threads.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from convergent.kernels.activations import SLOPE
from convergent.kernels.lanes import (
    at,
    fma,
    larger,
    load_some,
    magnitude,
    prefetch,
    prefetch_once,
    put,
    splat,
    store_some,
    take,
    width,
)

CHUNKS = 64
RUN = 64  # rows that are finished while they are in the first cache
STREAM = 6_000_000  # weights from which on the last cache does not hold them until the next pass
PIECE = 4096  # nodes of a graph that are reduced by one thread

CODES = {"identity": 0, "relu": 1, "leaky_relu": 2, "tanh": 3, "elu": 4, "softsign": 5, "silu": 6, "mish": 7, "gelu": 8}

kernel = njit(cache=True, nogil=True, error_model="numpy")
team = njit(cache=True, nogil=True, error_model="numpy", parallel=True)


@kernel
def cut(pointer, first, last, chunk, chunks):
    """The row at which a chunk of first .. last begins: equal shares of rows and edges together."""
    base = at(pointer, first) + first
    share = base + (at(pointer, last) + last - base) * chunk // chunks
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if at(pointer, middle) + middle < share:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def activate_one(code, z):
    if code == 3:
        return math.tanh(z)
    if code == 4:
        return z if z > 0 else math.expm1(z)
    if code == 5:
        return z / (1 + abs(z))
    if code == 6:
        return z / (1 + math.exp(-z))
    if code == 7:
        return z * math.tanh(z if z > 20 else math.log1p(math.exp(z)))
    return z * (1 + math.erf(z * math.sqrt(0.5))) / 2


@kernel
def activate(code, values, first, last):
    """phi in place on the flat values first .. last; the two cheap ones in loops that the compiler turns into vectors."""
    if code == 1:
        for index in range(first, last):
            z = at(values, index)
            put(values, index, 0.0 if z < 0 else z)
    elif code == 2:
        for index in range(first, last):
            z = at(values, index)
            put(values, index, z * SLOPE if z < 0 else z)
    elif code > 2:
        for index in range(first, last):
            put(values, index, activate_one(code, at(values, index)))


# --- y = W x + b ---


@kernel
def propagate_rows(lanes, first, last, pointer, column, order, permuted, weight, x, bias, biased, ahead, y):
    heads, top, streams = x.shape[1], len(column) - 1, weight.size > STREAM
    for row in range(first, last):
        begin, end = at(pointer, row), at(pointer, row + 1)
        for head in range(0, heads, width(lanes)):
            count = heads - head
            total = splat(lanes, 0.0)
            if biased:
                total = load_some(lanes, bias, row * heads + head, count)
            for position in range(begin, end):
                coming = min(position + ahead, top)
                prefetch(x, at(column, coming) * heads + head)
                edge, edge_coming = position, coming
                if permuted:
                    edge, edge_coming = at(order, position), at(order, coming)
                if streams:
                    prefetch_once(weight, edge_coming * heads + head)
                elif permuted:
                    prefetch(weight, edge_coming * heads + head)
                factor = load_some(lanes, weight, edge * heads + head, count)
                total = fma(factor, load_some(lanes, x, at(column, position) * heads + head, count), total)
            store_some(lanes, y, row * heads + head, total, count)


@kernel
def propagate_worker(lanes, counter, pointer, column, order, permuted, weight, x, bias, biased, ahead, y):
    rows = len(pointer) - 1
    chunk = take(counter)
    while chunk < CHUNKS:
        first, last = cut(pointer, 0, rows, chunk, CHUNKS), cut(pointer, 0, rows, chunk + 1, CHUNKS)
        if chunk == CHUNKS - 1:
            last = rows
        propagate_rows(lanes, first, last, pointer, column, order, permuted, weight, x, bias, biased, ahead, y)
        chunk = take(counter)


@team
def propagate_team(threads, lanes, counter, args):
    for _ in prange(threads):
        propagate_worker(lanes, counter, *args)


@kernel
def defect_worker(lanes, counter, pointer, column, order, permuted, weight, x, bias, code, ahead, y):
    rows, heads = len(pointer) - 1, x.shape[1]
    chunk = take(counter)
    while chunk < CHUNKS:
        first, last = cut(pointer, 0, rows, chunk, CHUNKS), cut(pointer, 0, rows, chunk + 1, CHUNKS)
        if chunk == CHUNKS - 1:
            last = rows
        for start in range(first, last, RUN):
            stop = min(start + RUN, last)
            propagate_rows(lanes, start, stop, pointer, column, order, permuted, weight, x, bias, True, ahead, y)
            activate(code, y, start * heads, stop * heads)
            for row in range(start, stop):
                for head in range(heads):
                    y[row, head] -= x[row, head]
        chunk = take(counter)


@team
def defect_team(threads, lanes, counter, args):
    for _ in prange(threads):
        defect_worker(lanes, counter, *args)


# --- sums of weights and products at edges ---


@kernel
def ordered_worker(lanes, counter, order, weight, out):
    edges, heads = weight.shape
    chunk = take(counter)
    while chunk < CHUNKS:
        for position in range(edges * chunk // CHUNKS, edges * (chunk + 1) // CHUNKS):
            coming, edge = at(order, min(position + 16, edges - 1)), at(order, position)
            for head in range(0, heads, width(lanes)):
                prefetch(weight, coming * heads + head)
                value = load_some(lanes, weight, edge * heads + head, heads - head)
                store_some(lanes, out, position * heads + head, value, heads - head)
        chunk = take(counter)


@team
def ordered_team(threads, lanes, counter, args):
    for _ in prange(threads):
        ordered_worker(lanes, counter, *args)


@kernel
def edges_worker(lanes, counter, row, column, u, x, values, summed, ahead, out):
    """At every edge u of its row times x of its column, or the sum of its value and both."""
    edges, heads = out.shape
    chunk = take(counter)
    while chunk < CHUNKS:
        for edge in range(edges * chunk // CHUNKS, edges * (chunk + 1) // CHUNKS):
            coming = min(edge + ahead, edges - 1)
            own, left, right = edge * heads, at(row, edge) * heads, at(column, edge) * heads
            for head in range(0, heads, width(lanes)):
                prefetch(u, at(row, coming) * heads + head)
                prefetch(x, at(column, coming) * heads + head)
                count = heads - head
                at_row, at_column = load_some(lanes, u, left + head, count), load_some(lanes, x, right + head, count)
                found = at_row * at_column
                if summed:
                    found = at_row + at_column + load_some(lanes, values, own + head, count)
                store_some(lanes, out, own + head, found, count)
        chunk = take(counter)


@team
def edges_team(threads, lanes, counter, args):
    for _ in prange(threads):
        edges_worker(lanes, counter, *args)


# --- one number per graph and head ---


@kernel
def pieces_of(segments):
    """Pieces of at most PIECE nodes: where each begins, and the first piece of every graph."""
    graphs = len(segments) - 1
    first_piece = np.zeros(graphs + 1, np.int64)
    for graph in range(graphs):
        nodes = at(segments, graph + 1) - at(segments, graph)
        first_piece[graph + 1] = first_piece[graph] + max(1, (nodes + PIECE - 1) // PIECE)
    begin = np.empty(first_piece[graphs] + 1, np.int64)
    for graph in range(graphs):
        for piece in range(first_piece[graph], first_piece[graph + 1]):
            begin[piece] = at(segments, graph) + (piece - first_piece[graph]) * PIECE
    begin[first_piece[graphs]] = at(segments, graphs)
    return begin, first_piece


@kernel
def reduce_worker(lanes, counter, begin, u, v, kind, out):
    """Of every piece: the largest magnitude (kind 0), the sum of magnitudes (1) or the inner product with v (2)."""
    heads = u.shape[1]
    piece = take(counter)
    while piece < len(begin) - 1:
        for head in range(0, heads, width(lanes)):
            count = heads - head
            total = splat(lanes, 0.0)
            for node in range(begin[piece], begin[piece + 1]):
                value = load_some(lanes, u, node * heads + head, count)
                if kind == 0:
                    total = larger(total, magnitude(value))
                elif kind == 1:
                    total = total + magnitude(value)
                else:
                    total = fma(value, load_some(lanes, v, node * heads + head, count), total)
            store_some(lanes, out, piece * heads + head, total, count)
        piece = take(counter)


@team
def reduce_team(threads, lanes, counter, args):
    for _ in prange(threads):
        reduce_worker(lanes, counter, *args)


@kernel
def row_peaks_worker(lanes, counter, begin, pointer, order, permuted, weight, out):
    """Of every piece: the largest absolute row sum."""
    heads, top = weight.shape[1], len(order) - 1
    piece = take(counter)
    while piece < len(begin) - 1:
        for head in range(0, heads, width(lanes)):
            peak = splat(lanes, 0.0)
            for row in range(begin[piece], begin[piece + 1]):
                total = splat(lanes, 0.0)
                for position in range(at(pointer, row), at(pointer, row + 1)):
                    edge = position
                    if permuted:
                        prefetch(weight, at(order, min(position + 16, top)) * heads + head)
                        edge = at(order, position)
                    total = total + magnitude(load_some(lanes, weight, edge * heads + head, heads - head))
                peak = larger(peak, total)
            store_some(lanes, out, piece * heads + head, peak, heads - head)
        piece = take(counter)


@team
def row_peaks_team(threads, lanes, counter, args):
    for _ in prange(threads):
        row_peaks_worker(lanes, counter, *args)


@kernel
def combine(partial, first_piece, kind):
    """From one row per piece to one row per graph."""
    graphs, heads = len(first_piece) - 1, partial.shape[1]
    out = np.empty((graphs, heads), np.float64)
    for graph in range(graphs):
        for head in range(heads):
            total = partial[first_piece[graph], head]
            for piece in range(first_piece[graph] + 1, first_piece[graph + 1]):
                value = partial[piece, head]
                if kind > 0:
                    total += value
                elif value > total or value != value:
                    total = value
            out[graph, head] = total
    return out


@kernel
def all_finite(bits, exponent):
    """Whether no number, read as an integer, has an exponent of ones only: NaN and infinity do."""
    wrong = 0
    for index in range(len(bits)):
        wrong += (bits[index] & exponent) == exponent
    return wrong == 0


# --- counting sort ---


@kernel
def group_keys(keys, size):
    """Pointer and stable order; the pointer's last entry is -1 where a key lies outside 0 .. size - 1."""
    pointer = np.zeros(size + 1, np.int64)
    order = np.empty(len(keys), np.int64)
    for index in range(len(keys)):
        key = at(keys, index)
        if key < 0 or key >= size:
            pointer[size] = -1
            return pointer, order
        pointer[key + 1] += 1
    for key in range(size):
        pointer[key + 1] += pointer[key]
    place = pointer[:size].copy()
    for index in range(len(keys)):
        key = at(keys, index)
        order[place[key]] = index
        place[key] += 1
    return pointer, order
