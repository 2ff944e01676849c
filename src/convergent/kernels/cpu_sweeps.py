"""Graphs larger than the cache: graph after graph, the rows of every sweep shared by all threads.

A worker finishes RUN rows at a time: product, activation and norms, while they are in the first cache. Norms are kept per
chunk and merged in the order of the chunks.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from convergent.kernels.cpu_blocks import all_met
from convergent.kernels.cpu_rows import CHUNKS, RUN, activate, cut, kernel, propagate_rows, team
from convergent.kernels.lanes import at, doubled, fma, in_double, larger, load_some, magnitude, put, store_some, take, width


@kernel
def extended(total, value, one):
    """A norm with one more value in it."""
    if one:
        return total + value
    return larger(total, value)


@kernel
def measure_rows(lanes, first, last, old, new, left, deflates, one, partial, chunk):
    """Add rows to the norm of new - old, and to its product with s (deflated) or to the norm of new (plain)."""
    heads, wide = new.shape[1], in_double(lanes)
    for head in range(0, heads, width(lanes)):
        count, here = heads - head, 2 * chunk * heads + head
        step = load_some(wide, partial, here, count)
        other = load_some(wide, partial, here + heads, count)
        for row in range(first, last):
            place = row * heads + head
            value = load_some(lanes, new, place, count)
            change = value - load_some(lanes, old, place, count)
            step = extended(step, doubled(magnitude(change)), one)
            if deflates:
                other = fma(load_some(wide, left, place, count), doubled(change), other)
            else:
                other = extended(other, doubled(magnitude(value)), one)
        store_some(wide, partial, here, step, count)
        store_some(wide, partial, here + heads, other, count)


@kernel
def sweep_worker(lanes, counter, first, last, pointer, column, weight, bias, old, new, left, deflates, code, one, ahead, partial):
    heads = old.shape[1]
    chunk = take(counter)
    while chunk < CHUNKS:
        begin = cut(pointer, first, last, chunk, CHUNKS)
        end = last if chunk == CHUNKS - 1 else cut(pointer, first, last, chunk + 1, CHUNKS)
        for start in range(begin, end, RUN):
            stop = min(start + RUN, end)
            propagate_rows(lanes, start, stop, pointer, column, column, False, weight, old, bias, True, ahead, new)
            activate(code, new, start * heads, stop * heads)
            measure_rows(lanes, start, stop, old, new, left, deflates, one, partial, chunk)
        chunk = take(counter)


@team
def sweep_team(threads, lanes, counter, args):
    for _ in prange(threads):
        sweep_worker(lanes, counter, *args)


@kernel
def sweep(lanes, threads, counter, args):
    counter[0] = 0
    if threads > 1:
        sweep_team(threads, lanes, counter, args)
    else:
        sweep_worker(lanes, counter, *args)


@kernel
def merge(partial, slot, adds, out):
    """One number per head from one per chunk."""
    for head in range(len(out)):
        total = 0.0
        for chunk in range(CHUNKS):
            value = partial[chunk, slot, head]
            if adds:
                total += value
            elif value > total or value != value:
                total = value
        out[head] = total


@kernel
def filled(size, value):
    """Plain loops here and below: array expressions take the compiler seconds."""
    out = np.empty(size, np.float64)
    for index in range(size):
        out[index] = value
    return out


@kernel
def clear(partial):
    for index in range(partial.size):
        put(partial, index, 0.0)


@kernel
def copy_rows(first, last, source, target):
    for index in range(first * source.shape[1], last * source.shape[1]):
        put(target, index, at(source, index))


@kernel
def picard_graph(
    lanes,
    threads,
    counter,
    first,
    last,
    pointer,
    column,
    weight,
    bias,
    x,
    spare,
    left,
    deflates,
    code,
    one,
    rate,
    aim,
    epsilon,
    limit,
    ahead,
    partial,
):
    """Take rows first .. last of x to their fixed point in place; returns the steps."""
    heads = x.shape[1]
    step, size = filled(heads, 0.0), filled(heads, 0.0)
    old, new = x, spare
    taken, done = 0, False
    while taken < limit and not done:
        clear(partial)
        args = (first, last, pointer, column, weight, bias, old, new, left, deflates, code, one, ahead, partial)
        sweep(lanes, threads, counter, args)
        merge(partial, 0, one, step)
        merge(partial, 1, one, size)
        done = all_met(rate, aim, step, size, epsilon)
        old, new, taken = new, old, taken + 1
    if taken % 2:
        copy_rows(first, last, old, x)
    return taken


# --- deflated ---


@kernel
def column_worker(counter, shares, first, last, pointer, column, weight, left):
    """Column sums over the number of nodes. A worker owns a range of columns and reads only the weights that fall into it."""
    heads, nodes = left.shape[1], last - first
    share = take(counter)
    while share < shares:
        low, high = first + nodes * share // shares, first + nodes * (share + 1) // shares
        for index in range(low * heads, high * heads):
            put(left, index, 0.0)
        for position in range(at(pointer, first), at(pointer, last)):
            target = at(column, position)
            if low <= target < high:
                for head in range(heads):
                    left[target, head] += weight[position, head]
        for node in range(low, high):
            for head in range(heads):
                left[node, head] /= nodes
        share = take(counter)


@team
def column_team(threads, counter, args):
    for _ in prange(threads):
        column_worker(counter, threads, *args)


@kernel
def shift_worker(lanes, counter, first, last, values, shift, one, partial):
    """Add the shift to every node, and the norm of the sum."""
    heads, wide, nodes = values.shape[1], in_double(lanes), last - first
    chunk = take(counter)
    while chunk < CHUNKS:
        for head in range(0, heads, width(lanes)):
            count = heads - head
            constant = load_some(lanes, shift, head, count)
            size = load_some(wide, partial, 2 * chunk * heads + head, count)
            for row in range(first + nodes * chunk // CHUNKS, first + nodes * (chunk + 1) // CHUNKS):
                value = load_some(lanes, values, row * heads + head, count) + constant
                store_some(lanes, values, row * heads + head, value, count)
                size = extended(size, doubled(magnitude(value)), one)
            store_some(wide, partial, 2 * chunk * heads + head, size, count)
        chunk = take(counter)


@team
def shift_team(threads, lanes, counter, args):
    for _ in prange(threads):
        shift_worker(lanes, counter, *args)


@kernel
def shift_rows(lanes, threads, counter, args):
    counter[0] = 0
    if threads > 1:
        shift_team(threads, lanes, counter, args)
    else:
        shift_worker(lanes, counter, *args)


@kernel
def column_means(threads, counter, args):
    counter[0] = 0
    if threads > 1:
        column_team(threads, counter, args)
    else:
        column_worker(counter, 1, *args)


@kernel
def plan_shift(rate, aim, epsilon, coarse, length, along, size, last, shifting, shift):
    """The shift of every head; True when every head is done."""
    left_over = 0.0
    for head in range(len(shift)):
        done = (rate[head] * length[head] <= aim[head]) | (length[head] <= 2 * epsilon * size[head]) | (not length[head] < np.inf)
        keeps = shifting[head] if length[head] <= rate[head] * last[head] else 0.0
        shifting[head] = keeps
        # the last step of a head is a plain one: its residual is known to be at most contraction * length
        shift[head] = 0.0 if done or keeps == 0.0 else along[head] / coarse[head]
        last[head] = length[head]
        left_over += 0.0 if done else 1.0
    return left_over == 0.0


@kernel
def deflated_graph(
    lanes,
    threads,
    counter,
    first,
    last,
    pointer,
    column,
    weight,
    bias,
    x,
    spare,
    left,
    deflates,
    code,
    one,
    rate,
    aim,
    epsilon,
    limit,
    ahead,
    partial,
):
    """Rows first .. last of x, which are zero, to their fixed point in place; returns the steps."""
    heads = x.shape[1]
    length, along, size, shift = filled(heads, 0.0), filled(heads, 0.0), filled(heads, 0.0), filled(heads, 0.0)
    coarse, previous, shifting = filled(heads, 1.0), filled(heads, np.inf), filled(heads, 1.0)
    column_means(threads, counter, (first, last, pointer, column, weight, left))
    for node in range(first, last):
        for head in range(heads):
            coarse[head] -= left[node, head]
    old, new = x, spare
    taken, done = 0, False
    while taken < limit and not done:
        clear(partial)
        args = (first, last, pointer, column, weight, bias, old, new, left, deflates, code, one, ahead, partial)
        sweep(lanes, threads, counter, args)
        merge(partial, 0, one, length)
        merge(partial, 1, True, along)
        done = plan_shift(rate, aim, epsilon, coarse, length, along, size, previous, shifting, shift)
        clear(partial)
        shift_rows(lanes, threads, counter, (first, last, new, shift, one, partial))
        merge(partial, 0, one, size)
        old, new, taken = new, old, taken + 1
    if taken % 2:
        copy_rows(first, last, old, x)
    return taken
