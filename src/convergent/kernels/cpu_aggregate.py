"""The kernels of algebraic multigrid: aggregates, the patterns and values of sparse products, relaxation, restriction.

``aggregate`` and ``reach`` depend on the structure alone and run once per graph, in time linear in what they read. ``combine``
makes the operators of a solve; ``relax`` and ``restrict`` are its steps. Workers and chunks are those of ``cpu_rows``.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from numba import prange
from torch import Tensor

from convergent.kernels.cpu_rows import CHUNKS, cut, kernel, pieces_of, team
from convergent.kernels.lanes import at, fma, load_some, prefetch, splat, store_some, take, width
from convergent.kernels.reference import Rows

NEAR = 16  # the prefetch distance of what lies in cache, where a prefetch costs more than it saves

# --- structure ---


@kernel
def form_aggregates(pointer, column):
    """The aggregate of every node, numbered in the order of their first nodes; -1 for a node without neighbours."""
    nodes = len(pointer) - 1
    out = np.full(nodes, -1, np.int64)
    count = 0
    for node in range(nodes):  # a node all of whose neighbours are free takes them
        if out[node] < 0:
            neighbours, free = 0, True
            for position in range(at(pointer, node), at(pointer, node + 1)):
                other = at(column, position)
                if other != node:
                    neighbours += 1
                    free = free and out[other] < 0
            if neighbours > 0 and free:
                for position in range(at(pointer, node), at(pointer, node + 1)):
                    out[at(column, position)] = count
                out[node] = count
                count += 1
    first = out.copy()
    for node in range(nodes):  # the others join one of these, along or against an edge
        for position in range(at(pointer, node), at(pointer, node + 1)):
            other = at(column, position)
            if out[node] < 0 and first[other] >= 0:
                out[node] = first[other]
            if out[other] < 0 and first[node] >= 0:
                out[other] = first[node]
    for node in range(nodes):  # what is left lies between nodes that joined
        if out[node] < 0:
            target = -1
            for position in range(at(pointer, node), at(pointer, node + 1)):
                other = at(column, position)
                if other != node and target < 0:
                    target = out[other]
            if target < 0:
                for position in range(at(pointer, node), at(pointer, node + 1)):
                    other = at(column, position)
                    if other != node:
                        target = count
                        out[other] = count
                if target >= 0:
                    count += 1
            out[node] = target
    for node in range(nodes):  # nodes without edges of their own that others read
        for position in range(at(pointer, node), at(pointer, node + 1)):
            other = at(column, position)
            if out[other] < 0 and other != node:
                out[other] = out[node]
    number = np.full(count, -1, np.int64)
    count = 0
    for node in range(nodes):
        if out[node] >= 0:
            if number[out[node]] < 0:
                number[out[node]] = count
                count += 1
            out[node] = number[out[node]]
    return out, count


@kernel
def reach_of(group_pointer, member, grouped, pointer, column, inner_pointer, inner_column, columns, cells):
    """The pattern of a product row by row: pointer and column; ``cells`` bounds their number."""
    groups = len(group_pointer) - 1 if grouped else len(pointer) - 1
    out_pointer = np.zeros(groups + 1, np.int64)
    out_column = np.empty(cells, np.int32)
    seen = np.full(columns, -1, np.int64)
    filled = 0
    for group in range(groups):
        begin, end = (at(group_pointer, group), at(group_pointer, group + 1)) if grouped else (group, group + 1)
        for slot in range(begin, end):
            node = at(member, slot) if grouped else slot
            for position in range(at(pointer, node) - 1, at(pointer, node + 1)):
                source = node if position < at(pointer, node) else at(column, position)
                for cell in range(at(inner_pointer, source), at(inner_pointer, source + 1)):
                    target = at(inner_column, cell)
                    if seen[target] != group:
                        seen[target] = group
                        out_column[filled] = target
                        filled += 1
        out_pointer[group + 1] = filled
    return out_pointer, out_column[:filled].copy()


@kernel
def reach_bound(pointer, column, inner_pointer):
    """The number of cells that a product can have at most."""
    cells = 0
    for node in range(len(pointer) - 1):
        cells += at(inner_pointer, node + 1) - at(inner_pointer, node)
        for position in range(at(pointer, node), at(pointer, node + 1)):
            source = at(column, position)
            cells += at(inner_pointer, source + 1) - at(inner_pointer, source)
    return cells


# --- values ---


@kernel
def combine_worker(
    lanes, counter, group_pointer, member, grouped, pointer, column, weight, keep, spread, inner_pointer, inner_column, inner,
    out_pointer, out_column, columns, out
):  # fmt: skip
    groups, heads = len(out_pointer) - 1, out.shape[1]
    place = np.empty(columns, np.int64)
    chunk = take(counter)
    while chunk < CHUNKS:
        first = cut(out_pointer, 0, groups, chunk, CHUNKS)
        last = groups if chunk == CHUNKS - 1 else cut(out_pointer, 0, groups, chunk + 1, CHUNKS)
        for group in range(first, last):
            for cell in range(at(out_pointer, group), at(out_pointer, group + 1)):
                place[at(out_column, cell)] = cell * heads
            begin, end = (at(group_pointer, group), at(group_pointer, group + 1)) if grouped else (group, group + 1)
            for head in range(0, heads, width(lanes)):
                count = heads - head
                for cell in range(at(out_pointer, group), at(out_pointer, group + 1)):
                    store_some(lanes, out, cell * heads + head, splat(lanes, 0.0), count)
                for slot in range(begin, end):
                    node = at(member, slot) if grouped else slot
                    share = load_some(lanes, spread, node * heads + head, count)
                    for position in range(at(pointer, node) - 1, at(pointer, node + 1)):
                        source, factor = node, share
                        if position < at(pointer, node):
                            factor = load_some(lanes, keep, node * heads + head, count)
                        else:
                            source = at(column, position)
                            factor = share * load_some(lanes, weight, position * heads + head, count)
                        for cell in range(at(inner_pointer, source), at(inner_pointer, source + 1)):
                            there = at(place, at(inner_column, cell)) + head
                            value = load_some(lanes, inner, cell * heads + head, count)
                            value = fma(factor, value, load_some(lanes, out, there, count))
                            store_some(lanes, out, there, value, count)
        chunk = take(counter)


@team
def combine_team(threads, lanes, counter, args):
    for _ in prange(threads):
        combine_worker(lanes, counter, *args)


@kernel
def relax_worker(lanes, counter, pointer, column, weight, inverse, scaled, bias, x, backward, chunks, ahead, y):
    """A Gauss-Seidel sweep from x to y in every chunk: what the sweep has passed is read from y, all else from x."""
    rows, heads, top = len(pointer) - 1, x.shape[1], len(column) - 1
    far = ahead > NEAR
    chunk = take(counter)
    while chunk < chunks:
        first = cut(pointer, 0, rows, chunk, chunks)
        last = rows if chunk == chunks - 1 else cut(pointer, 0, rows, chunk + 1, chunks)
        for turn in range(first, last):
            row, low, high, coming = turn, first, turn, ahead
            if backward:
                row = first + last - 1 - turn
                low, high, coming = row + 1, last, -ahead
            begin, end = at(pointer, row), at(pointer, row + 1)
            for head in range(0, heads, width(lanes)):
                count = heads - head
                total = load_some(lanes, bias, row * heads + head, count)
                for position in range(begin, end):
                    if far:
                        prefetch(x, at(column, max(0, min(position + coming, top))) * heads + head)
                    source = at(column, position)
                    factor = load_some(lanes, weight, position * heads + head, count)
                    if source >= low and source < high:
                        total = fma(factor, load_some(lanes, y, source * heads + head, count), total)
                    else:
                        total = fma(factor, load_some(lanes, x, source * heads + head, count), total)
                if scaled:
                    total = total * load_some(lanes, inverse, row * heads + head, count)
                store_some(lanes, y, row * heads + head, total, count)
        chunk = take(counter)


@team
def relax_team(threads, lanes, counter, args):
    for _ in prange(threads):
        relax_worker(lanes, counter, *args)


@kernel
def restrict_worker(lanes, counter, group_pointer, member, pointer, column, weight, inverse, scaled, r, omega, ahead, out):
    groups, heads, top = len(group_pointer) - 1, r.shape[1], len(column) - 1
    far = ahead > NEAR
    chunk = take(counter)
    while chunk < CHUNKS:
        for group in range(groups * chunk // CHUNKS, groups * (chunk + 1) // CHUNKS):
            begin, end = at(group_pointer, group), at(group_pointer, group + 1)
            for head in range(0, heads, width(lanes)):
                count = heads - head
                total, kept = splat(lanes, 0.0), splat(lanes, 0.0)
                for slot in range(begin, end):
                    node = at(member, slot)
                    kept = kept + load_some(lanes, r, node * heads + head, count)
                    if omega > 0:
                        for position in range(at(pointer, node), at(pointer, node + 1)):
                            if far:
                                prefetch(r, at(column, min(position + ahead, top)) * heads + head)
                            source = at(column, position) * heads + head
                            factor = load_some(lanes, weight, position * heads + head, count)
                            if scaled:
                                factor = factor * load_some(lanes, inverse, source, count)
                            total = fma(factor, load_some(lanes, r, source, count), total)
                whole = r.dtype.type(1)
                share = splat(lanes, whole / r.dtype.type(end - begin))
                value = share * fma(splat(lanes, omega), total, splat(lanes, whole - omega) * kept)
                store_some(lanes, out, group * heads + head, value, count)
        chunk = take(counter)


@team
def restrict_team(threads, lanes, counter, args):
    for _ in prange(threads):
        restrict_worker(lanes, counter, *args)


@kernel
def blend_worker(lanes, counter, begin, graph_of, a, first, b, second, c, out):
    """Piece by piece, so that a coefficient belongs to one graph."""
    heads = a.shape[1]
    piece = take(counter)
    while piece < len(begin) - 1:
        for head in range(0, heads, width(lanes)):
            count, mine = heads - head, at(graph_of, piece) * heads + head
            left, right = load_some(lanes, first, mine, count), load_some(lanes, second, mine, count)
            for node in range(begin[piece], begin[piece + 1]):
                place = node * heads + head
                total = load_some(lanes, a, place, count)
                total = fma(left, load_some(lanes, b, place, count), total)
                total = fma(right, load_some(lanes, c, place, count), total)
                store_some(lanes, out, place, total, count)
        piece = take(counter)


@team
def blend_team(threads, lanes, counter, args):
    for _ in prange(threads):
        blend_worker(lanes, counter, *args)


# --- the same functions as ``reference`` has ---


def _door():
    from convergent.kernels import cpu  # the door imports this file

    return cpu


def aggregate(rows: Rows) -> Tensor:
    cpu = _door()
    return torch.from_numpy(form_aggregates(cpu._array(rows.pointer), cpu._array(rows.column))[0])


def _groups(rows: Rows, groups: Rows | None) -> tuple[np.ndarray, np.ndarray, bool]:
    """Pointer and members of the groups; the rows stand in where every node is a group of its own."""
    cpu = _door()
    chosen = rows if groups is None else groups
    return cpu._array(chosen.pointer), cpu._array(chosen.column), groups is not None


def reach(rows: Rows, inner: Rows, columns: int, groups: Rows | None = None) -> Rows:
    cpu = _door()
    pointer, column = cpu._array(rows.pointer), cpu._array(rows.column)
    inner_pointer, inner_column = cpu._array(inner.pointer), cpu._array(inner.column)
    cells = reach_bound(pointer, column, inner_pointer)
    args = (pointer, column, inner_pointer, inner_column, columns, cells)
    out_pointer, out_column = reach_of(*_groups(rows, groups), *args)
    kind = rows.column.dtype
    return Rows(torch.from_numpy(out_pointer).to(kind), torch.from_numpy(out_column).to(kind), None)


def combine(
    rows: Rows, weight: Tensor, keep: Tensor, spread: Tensor, inner: Rows, values: Tensor, out: Rows, columns: int,
    groups: Rows | None = None,
) -> Tensor:  # fmt: skip
    cpu = _door()
    result = torch.empty(len(out.column), weight.shape[1], dtype=torch.float64)
    if result.numel():
        operator = (cpu._array(rows.pointer), cpu._array(rows.column), cpu._array(weight))
        scales = (cpu._as(keep, torch.float64), cpu._as(spread, torch.float64))
        right = (cpu._array(inner.pointer), cpu._array(inner.column), cpu._as(values, torch.float64))
        target = (cpu._array(out.pointer), cpu._array(out.column), columns, result.numpy())
        args = (*_groups(rows, groups), *operator, *scales, *right, *target)
        lanes = cpu._streaming(weight.shape[1], torch.float64)
        cpu._run("combine", sys.modules[__name__], lanes, weight.numel(), args)
    return result


def _scale(inverse: Tensor | None, stand_in: Tensor) -> tuple[np.ndarray, bool]:
    return _door()._array(stand_in if inverse is None else inverse), inverse is not None


def relax(rows: Rows, weight: Tensor, inverse: Tensor | None, bias: Tensor, x: Tensor, blocks: bool) -> Tensor:
    cpu = _door()
    if not x.numel():
        return x
    source, spare = cpu._array(x), np.empty(x.shape, cpu._array(x).dtype)
    chunks = CHUNKS if blocks and weight.numel() >= cpu.SERIAL else 1  # never by the threads: they must not change a result
    operator = [cpu._array(part) for part in (rows.pointer, rows.column, weight)]
    operator += [*_scale(inverse, x), cpu._array(bias)]
    lanes, ahead = cpu._streaming(x.shape[1], x.dtype), cpu._ahead(x)
    for backward, old, new in ((False, source, spare), (True, spare, source)):
        args = (*operator, old, backward, chunks, ahead, new)
        cpu._run("relax", sys.modules[__name__], lanes, weight.numel(), args)
    return torch.from_numpy(source)


def restrict(rows: Rows, weight: Tensor, inverse: Tensor | None, r: Tensor, groups: Rows, omega: float) -> Tensor:
    cpu = _door()
    out = torch.empty(len(groups.pointer) - 1, r.shape[1], dtype=r.dtype)
    if out.numel():
        structure = [cpu._array(part) for part in (groups.pointer, groups.column, rows.pointer, rows.column)]
        number = np.float32 if r.dtype == torch.float32 else np.float64
        args = (*structure, cpu._array(weight), *_scale(inverse, r), cpu._array(r), number(omega), cpu._ahead(r), out.numpy())
        cpu._run("restrict", sys.modules[__name__], cpu._streaming(r.shape[1], r.dtype), weight.numel(), args)
    return out


def blend(a: Tensor, first: Tensor, b: Tensor, second: Tensor, c: Tensor, segments: Tensor, out: Tensor) -> Tensor:
    cpu = _door()
    if out.numel():
        begin, first_piece = pieces_of(cpu._array(segments))
        graph_of = np.repeat(np.arange(len(first_piece) - 1), np.diff(first_piece))
        scales = cpu._as(first, a.dtype), cpu._as(second, a.dtype)
        args = (begin, graph_of, cpu._array(a), scales[0], cpu._array(b), scales[1], cpu._array(c), out.numpy())
        cpu._run("blend", sys.modules[__name__], cpu._streaming(a.shape[1], a.dtype), a.numel(), args)
    return out
