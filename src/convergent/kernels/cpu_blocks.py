"""Graphs that fit in cache: one graph and one block of heads after the other, each taken to its end before the next begins.

A task is a graph and a block of as many heads as there are lanes. Its weights are packed side by side in the order of the
rows, with zeros in lanes beyond the last head, and stay in the first or second cache for all its steps.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from convergent.kernels.activations import SLOPE
from convergent.kernels.cpu_rows import activate, kernel, team
from convergent.kernels.lanes import (
    at,
    doubled,
    fma,
    in_double,
    larger,
    load,
    load_some,
    magnitude,
    misalignment,
    raise_to,
    splat,
    store,
    store_some,
    take,
    where_negative,
    width,
)


@kernel
def extent(segments, pointer, graphs):
    """The most nodes and the most edges among these graphs."""
    nodes = edges = 0
    for graph in graphs:
        first, last = at(segments, graph), at(segments, graph + 1)
        nodes = max(nodes, last - first)
        edges = max(edges, at(pointer, last) - at(pointer, first))
    return nodes, edges


@kernel
def asks_for_nothing(goal, graph, head, heads):
    for lane in range(head, min(head + heads, goal.shape[1])):
        if np.isfinite(goal[graph, lane]):
            return False
    return True


@kernel
def choose(segments, pointer, goal, room):
    """Graphs with something to reach: those with at most ``room`` edges, and the others."""
    small, large = np.empty(len(goal), np.int64), np.empty(len(goal), np.int64)
    smalls = larges = 0
    for graph in range(len(goal)):
        if asks_for_nothing(goal, graph, 0, goal.shape[1]):
            continue
        if at(pointer, at(segments, graph + 1)) - at(pointer, at(segments, graph)) <= room:
            small[smalls] = graph
            smalls += 1
        else:
            large[larges] = graph
            larges += 1
    return small[:smalls], large[:larges]


@kernel
def pack_weights(lanes, first, last, head, pointer, column, order, permuted, weight, packed, reads):
    """The block's weights in row order, and for each the place in packed x that it reads."""
    heads, base = weight.shape[1], at(pointer, first)
    for position in range(base, at(pointer, last)):
        edge = at(order, position) if permuted else position
        slot = position - base
        store(lanes, packed, slot * width(lanes), load_some(lanes, weight, edge * heads + head, heads - head))
        reads[slot] = (at(column, position) - first) * width(lanes)


@kernel
def pack_nodes(lanes, first, last, head, values, packed, place):
    heads = values.shape[1]
    for node in range(first, last):
        value = load_some(lanes, values, node * heads + head, heads - head)
        store(lanes, packed, place + (node - first) * width(lanes), value)


@kernel
def unpack_nodes(lanes, first, last, head, packed, place, values):
    heads = values.shape[1]
    for node in range(first, last):
        value = load(lanes, packed, place + (node - first) * width(lanes))
        store_some(lanes, values, node * heads + head, value, heads - head)


@kernel
def pack_lanes(graph, head, values, padding, packed):
    """One row of a [G, H] table, with the padding beyond the last head."""
    for lane in range(len(packed)):
        packed[lane] = values[graph, head + lane] if head + lane < values.shape[1] else padding


# --- Picard ---


@kernel
def bend(lanes, value, code):
    """The activations that cost nothing, in registers."""
    if code == 1:
        value = where_negative(value, splat(lanes, 0.0), value)
    elif code == 2:
        value = where_negative(value, value * splat(lanes, SLOPE), value)
    return value


@kernel
def picard_sweep(lanes, nodes, start, pointer, reads, packed, bias, old, new, code, count, one, step, size):
    """new = phi(W old + b) and the norms of new - old and of new."""
    w, base = width(lanes), at(pointer, start)
    step_peak = size_peak = splat(lanes, 0.0)
    step_sum = size_sum = splat(in_double(lanes), 0.0)
    end = base
    for node in range(nodes):
        place = node * w
        total = load(lanes, packed, bias + place)
        begin, end = end, at(pointer, start + node + 1)
        for slot in range(begin - base, end - base):
            total = fma(load(lanes, packed, slot * w), load(lanes, packed, old + at(reads, slot)), total)
        total = bend(lanes, total, code)
        if code > 2:
            store(lanes, packed, new + place, total)
            activate(code, packed, new + place, new + place + count)
            total = load(lanes, packed, new + place)
        store(lanes, packed, new + place, total)
        change = magnitude(total - load(lanes, packed, old + place))
        if one:
            step_sum = step_sum + doubled(change)
            size_sum = size_sum + doubled(magnitude(total))
        else:
            step_peak = larger(step_peak, change)
            size_peak = larger(size_peak, magnitude(total))
    if one:
        store(lanes, step, 0, step_sum)
        store(lanes, size, 0, size_sum)
    else:
        store(lanes, step, 0, step_peak)
        store(lanes, size, 0, size_peak)


@kernel
def all_met(contraction, goal, step, size, epsilon):
    """Every lane is at its goal, moves by no more than rounding does, or has left the range of numbers."""
    for lane in range(len(step)):
        going = contraction[lane] * step[lane] > goal[lane] and step[lane] > 2 * epsilon * size[lane]
        if going and step[lane] < np.inf:
            return False
    return True


@kernel
def picard_worker(
    lanes,
    counter,
    graphs,
    segments,
    pointer,
    column,
    order,
    permuted,
    weight,
    bias,
    x,
    code,
    one,
    contraction,
    goal,
    epsilon,
    limit,
    out,
    steps,
):
    w, heads = width(lanes), x.shape[1]
    blocks = (heads + w - 1) // w
    nodes, edges = extent(segments, pointer, graphs)
    packed = np.empty((edges + 3 * nodes) * w + 64, x.dtype)
    packed = packed[misalignment(packed) :]
    reads = np.empty(edges, np.int32)
    rate, aim, step, size = np.empty(w), np.empty(w), np.empty(w), np.empty(w)
    task = take(counter)
    while task < len(graphs) * blocks:
        graph, head = graphs[task // blocks], task % blocks * w
        first, last = at(segments, graph), at(segments, graph + 1)
        nodes, edges = last - first, at(pointer, last) - at(pointer, first)
        shift, old, new = edges * w, (edges + nodes) * w, (edges + 2 * nodes) * w
        if not asks_for_nothing(goal, graph, head, w):
            pack_weights(lanes, first, last, head, pointer, column, order, permuted, weight, packed, reads)
            pack_nodes(lanes, first, last, head, bias, packed, shift)
            pack_nodes(lanes, first, last, head, x, packed, old)
            pack_lanes(graph, head, contraction, 0.0, rate)
            pack_lanes(graph, head, goal, np.inf, aim)
            taken = 0
            while taken < limit:
                picard_sweep(
                    lanes, nodes, first, pointer, reads, packed, shift, old, new, code, min(w, heads - head), one, step, size
                )
                old, new, taken = new, old, taken + 1
                if all_met(rate, aim, step, size, epsilon):
                    break
            unpack_nodes(lanes, first, last, head, packed, old, out)
            raise_to(steps, graph, taken)
        task = take(counter)


@team
def picard_team(threads, lanes, counter, args):
    for _ in prange(threads):
        picard_worker(lanes, counter, *args)
