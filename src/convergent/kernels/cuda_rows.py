"""Triton kernels over rows and segments.

A tile is [R rows, D positions, B heads]: the positions of neighbouring rows lie side by side in memory, so that reads of weights
are whole lines for one head as for many. Rows that are much longer than the others (hubs) are cut into chunks, which are added
up in their order: no result depends on the order in which programs run.
"""

from __future__ import annotations

import triton
import triton.language as tl

from convergent.kernels.cuda_launch import Kernel


@triton.jit
def places(index, LONG: tl.constexpr):
    """Indices wide enough to be multiplied by the heads; the narrow ones cost half the instructions.

    An argument that is 1 comes as a constant of the compiler: it can be cast, but has no methods of its own.
    """
    return tl.cast(index, tl.int64) if LONG else tl.cast(index, tl.int32)


@triton.jit
def positions(order, column, begin, length, offset, PERMUTED: tl.constexpr, ONES: tl.constexpr, STREAM: tl.constexpr,
              LONG: tl.constexpr):  # fmt: skip
    """The positions [R, D] at these offsets of R rows: which there are, their edges, and the columns they read."""
    inside = offset[None, :] < length[:, None]
    edge = begin[:, None] + offset[None, :]
    source = edge
    if not ONES:
        source = places(tl.load(column + edge, mask=inside, other=0, eviction_policy=STREAM), LONG)
    if PERMUTED:
        edge = places(tl.load(order + edge, mask=inside, other=0), LONG)
    return inside, edge, source


@triton.jit
def factors(weight, inside, edge, head, heads, ABSOLUTE: tl.constexpr, STREAM: tl.constexpr, WIDE: tl.constexpr):
    """The weights at these positions, [R, D, B]."""
    mask = inside[:, :, None] & (head < heads)[None, None, :]
    factor = tl.load(weight + edge[:, :, None] * heads + head[None, None, :], mask=mask, other=0.0, eviction_policy=STREAM)
    factor = factor.to(tl.float64 if WIDE else tl.float32)
    return tl.abs(factor) if ABSOLUTE else factor


@triton.jit
def times_x(factor, x, inside, source, head, heads, ONES: tl.constexpr):
    """Times what is read there, or not (ONES)."""
    if not ONES:
        mask = inside[:, :, None] & (head < heads)[None, None, :]
        value = tl.load(x + source[:, :, None] * heads + head[None, None, :], mask=mask, other=0.0)
        factor = factor * value.to(factor.dtype)
    return factor


@triton.jit
def row_product(weight, order, column, x, begin, length, head, heads, PERMUTED: tl.constexpr, ABSOLUTE: tl.constexpr,
                ONES: tl.constexpr, WIDE: tl.constexpr, LONG: tl.constexpr, R: tl.constexpr, D: tl.constexpr, U: tl.constexpr,
                B: tl.constexpr):  # fmt: skip
    """W x of R rows, or sums of w (ONES), of |w| (ABSOLUTE): [R, B].

    U times D positions are taken at a time, columns before weights before x, so that as much as possible is under way together.
    """
    total = tl.zeros([R, B], tl.float64 if WIDE else tl.float32)
    longest = tl.max(length)
    # a single head leaves no room in the cache for what is read once
    STREAM: tl.constexpr = "evict_first" if B == 1 else ""
    for start in range(0, longest, U * D):
        at = start + tl.arange(0, D)
        inside, edge, source = positions(order, column, begin, length, at, PERMUTED, ONES, STREAM, LONG)
        if U > 1:
            inside1, edge1, source1 = positions(order, column, begin, length, at + D, PERMUTED, ONES, STREAM, LONG)
        if U > 2:
            inside2, edge2, source2 = positions(order, column, begin, length, at + 2 * D, PERMUTED, ONES, STREAM, LONG)
        found = factors(weight, inside, edge, head, heads, ABSOLUTE, STREAM, WIDE)
        if U > 1:
            found1 = factors(weight, inside1, edge1, head, heads, ABSOLUTE, STREAM, WIDE)
        if U > 2:
            found2 = factors(weight, inside2, edge2, head, heads, ABSOLUTE, STREAM, WIDE)
        found = times_x(found, x, inside, source, head, heads, ONES)
        if U > 1:
            found += times_x(found1, x, inside1, source1, head, heads, ONES)
        if U > 2:
            found += times_x(found2, x, inside2, source2, head, heads, ONES)
        total += tl.sum(found, axis=1)
    return total


@triton.jit
def rows_kernel(pointer, column, order, weight, x, bias, out, rows, heads, heavy, PERMUTED: tl.constexpr, ABSOLUTE: tl.constexpr,
                ONES: tl.constexpr, WIDE: tl.constexpr, LONG: tl.constexpr, HUBS: tl.constexpr, BIASED: tl.constexpr,
                MINUS: tl.constexpr, R: tl.constexpr, D: tl.constexpr, U: tl.constexpr, B: tl.constexpr):  # fmt: skip
    """out = W x (+ bias) (- x); of rows with more than ``heavy`` positions (HUBS) ``out`` holds W x already."""
    row = places(tl.program_id(0), LONG) * R + tl.arange(0, R)
    head = tl.program_id(1) * B + tl.arange(0, B)
    alive = row < rows
    begin = places(tl.load(pointer + row, mask=alive, other=0), LONG)
    length = (tl.load(pointer + row + 1, mask=alive, other=0) - begin).to(tl.int32)
    place = row[:, None] * heads + head[None, :]
    mask = alive[:, None] & (head < heads)[None, :]
    short = tl.where(length > heavy, 0, length) if HUBS else length
    total = row_product(weight, order, column, x, begin, short, head, heads, PERMUTED, ABSOLUTE, ONES, WIDE, LONG, R, D, U, B)
    if HUBS:
        total += tl.load(out + place, mask=mask & (length > heavy)[:, None], other=0.0)
    if BIASED:
        total += tl.load(bias + place, mask=mask, other=0.0).to(total.dtype)
    if MINUS:
        total -= tl.load(x + place, mask=mask, other=0.0).to(total.dtype)
    tl.store(out + place, total, mask=mask)


@triton.jit
def chunk_kernel(first, last, column, order, weight, x, out, heads, PERMUTED: tl.constexpr, ABSOLUTE: tl.constexpr,
                 ONES: tl.constexpr, WIDE: tl.constexpr, LONG: tl.constexpr, D: tl.constexpr, B: tl.constexpr):  # fmt: skip
    """A chunk of a long row: out [chunks, H]."""
    chunk = tl.program_id(0) + tl.arange(0, 1)
    head = tl.program_id(1) * B + tl.arange(0, B)
    begin = places(tl.load(first + chunk), LONG)
    length = (tl.load(last + chunk) - begin).to(tl.int32)
    total = row_product(weight, order, column, x, begin, length, head, heads, PERMUTED, ABSOLUTE, ONES, WIDE, LONG, 1, D, 1, B)
    tl.store(out + chunk[:, None] * heads + head[None, :], total, mask=(head < heads)[None, :])


@triton.jit
def gather_chunks_kernel(row, chunk_pointer, owner, live, partial, out, heads, B: tl.constexpr):
    """Add the chunks of every long row, in their order; a row whose graph is not live any more stays as it is."""
    index = tl.program_id(0)
    head = tl.program_id(1) * B + tl.arange(0, B)
    mask = (head < heads) & (tl.load(live + tl.load(owner + index)) != 0)
    total = tl.zeros([B], out.dtype.element_ty)
    for chunk in range(tl.load(chunk_pointer + index), tl.load(chunk_pointer + index + 1)):
        total += tl.load(partial + chunk * heads + head, mask=mask, other=0.0)
    tl.store(out + tl.load(row + index) * heads + head, total, mask=mask)


@triton.jit
def edges_kernel(row, column, u, x, values, out, edges, heads, SUM: tl.constexpr, LONG: tl.constexpr, E: tl.constexpr,
                 B: tl.constexpr):  # fmt: skip
    """At every edge u of its row times x of its column, or the sum of its value and both (SUM)."""
    edge = places(tl.program_id(0), LONG) * E + tl.arange(0, E)
    head = tl.program_id(1) * B + tl.arange(0, B)
    alive = edge < edges
    mask = alive[:, None] & (head < heads)[None, :]
    own = edge[:, None] * heads + head[None, :]
    left = places(tl.load(row + edge, mask=alive, other=0), LONG)[:, None] * heads + head[None, :]
    right = places(tl.load(column + edge, mask=alive, other=0), LONG)[:, None] * heads + head[None, :]
    at_row = tl.load(u + left, mask=mask, other=0.0).to(out.dtype.element_ty)
    at_column = tl.load(x + right, mask=mask, other=0.0).to(out.dtype.element_ty)
    found = at_row * at_column
    if SUM:
        found = at_row + at_column + tl.load(values + own, mask=mask, other=0.0)
    tl.store(out + own, found, mask=mask)


@triton.jit
def segment_kernel(first, last, u, v, out, heads, MEASURE: tl.constexpr, R: tl.constexpr, B: tl.constexpr):
    """Per piece and head: the largest |u| ("max"), the sum of |u| ("one"), or the sum of u v ("dot"); NaN stays NaN."""
    piece = tl.program_id(0)
    head = tl.program_id(1) * B + tl.arange(0, B)
    begin, end = tl.load(first + piece).to(tl.int64), tl.load(last + piece).to(tl.int64)
    total = tl.zeros([R, B], tl.float64)
    for start in range(begin, end, R):
        row = start + tl.arange(0, R)
        mask = (row < end)[:, None] & (head < heads)[None, :]
        place = row[:, None] * heads + head[None, :]
        value = tl.load(u + place, mask=mask, other=0.0).to(tl.float64)
        if MEASURE == "dot":
            total += value * tl.load(v + place, mask=mask, other=0.0).to(tl.float64)
        elif MEASURE == "one":
            total += tl.abs(value)
        else:
            total = tl.maximum(total, tl.abs(value), propagate_nan=tl.PropagateNan.ALL)
    if MEASURE == "max":
        # a reduction by maximum forgets NaN, a sum does not
        broken = tl.sum(tl.where(total == total, 0.0, 1.0), axis=0)
        found = tl.max(tl.where(total == total, total, 0.0), axis=0)
        found = tl.where(broken > 0, float("nan"), found)
    else:
        found = tl.sum(total, axis=0)
    tl.store(out + piece * heads + head, found, mask=head < heads)


rows, chunks, gather_chunks = Kernel(rows_kernel), Kernel(chunk_kernel), Kernel(gather_chunks_kernel)
edges, segments = Kernel(edges_kernel), Kernel(segment_kernel)
