"""Triton kernels over rows and segments.

A tile is [R rows, D positions, B heads]: the positions of neighbouring rows lie side by side in memory, so that reads of weights
are whole lines for one head as for many. Rows that are much longer than the others (hubs) are cut into chunks, which are added
up in their order: no result depends on the order in which programs run.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def places(index, LONG: tl.constexpr):
    """Indices wide enough to be multiplied by the heads; the narrow ones cost half the instructions."""
    return index.to(tl.int64) if LONG else index.to(tl.int32)


@triton.jit
def tile_product(weight, order, column, x, begin, length, offset, head, heads, PERMUTED: tl.constexpr, ABSOLUTE: tl.constexpr,
                 ONES: tl.constexpr, WIDE: tl.constexpr, LONG: tl.constexpr):  # fmt: skip
    """sum over D positions of w x, [R, B]; of |w| (ABSOLUTE) or of w alone (ONES)."""
    inside = offset[None, :] < length[:, None]  # [R, D]
    position = begin[:, None] + offset[None, :]
    edge = position
    if PERMUTED:
        edge = places(tl.load(order + position, mask=inside, other=0), LONG)
    mask = inside[:, :, None] & (head < heads)[None, None, :]
    factor = tl.load(weight + edge[:, :, None] * heads + head[None, None, :], mask=mask, other=0.0)
    if WIDE:
        factor = factor.to(tl.float64)
    else:
        factor = factor.to(tl.float32)
    if ABSOLUTE:
        factor = tl.abs(factor)
    if not ONES:
        source = places(tl.load(column + position, mask=inside, other=0), LONG)
        value = tl.load(x + source[:, :, None] * heads + head[None, None, :], mask=mask, other=0.0)
        factor = factor * value.to(factor.dtype)
    return tl.sum(factor, axis=1)


@triton.jit
def rows_kernel(pointer, column, order, weight, x, bias, out, rows, heads, heavy, PERMUTED: tl.constexpr, ABSOLUTE: tl.constexpr,
                ONES: tl.constexpr, WIDE: tl.constexpr, LONG: tl.constexpr, BIASED: tl.constexpr, MINUS: tl.constexpr,
                R: tl.constexpr, D: tl.constexpr, B: tl.constexpr):  # fmt: skip
    """out = W x (+ bias) (- x); rows of more than ``heavy`` positions only get what does not depend on them."""
    row = places(tl.program_id(0), LONG) * R + tl.arange(0, R)
    head = tl.program_id(1) * B + tl.arange(0, B)
    alive = row < rows
    begin = places(tl.load(pointer + row, mask=alive, other=0), LONG)
    length = (tl.load(pointer + row + 1, mask=alive, other=0) - begin).to(tl.int32)
    length = tl.where(length > heavy, 0, length)
    total = tl.zeros([R, B], tl.float64 if WIDE else tl.float32)
    longest = tl.max(length)
    for start in range(0, longest, D):
        offset = start + tl.arange(0, D)
        total += tile_product(weight, order, column, x, begin, length, offset, head, heads, PERMUTED, ABSOLUTE, ONES, WIDE, LONG)
    place = row[:, None] * heads + head[None, :]
    mask = alive[:, None] & (head < heads)[None, :]
    if BIASED:
        total += tl.load(bias + place, mask=mask, other=0.0).to(total.dtype)
    if MINUS:
        total -= tl.load(x + place, mask=mask, other=0.0).to(total.dtype)
    tl.store(out + place, total, mask=mask)


@triton.jit
def chunk_kernel(first, last, column, order, weight, x, out, heads, PERMUTED: tl.constexpr, ABSOLUTE: tl.constexpr,
                 ONES: tl.constexpr, WIDE: tl.constexpr, LONG: tl.constexpr, D: tl.constexpr, B: tl.constexpr):  # fmt: skip
    """A chunk of a long row: out [chunks, H]."""
    chunk = tl.program_id(0)
    head = tl.program_id(1) * B + tl.arange(0, B)
    begin = places(tl.load(first + chunk), LONG)
    length = (tl.load(last + chunk) - begin).to(tl.int32) + tl.zeros([1], tl.int32)
    total = tl.zeros([1, B], tl.float64 if WIDE else tl.float32)
    longest = tl.max(length)
    for start in range(0, longest, D):
        offset = start + tl.arange(0, D)
        begins = begin + tl.zeros([1], begin.dtype)
        total += tile_product(weight, order, column, x, begins, length, offset, head, heads, PERMUTED, ABSOLUTE, ONES, WIDE, LONG)
    place = chunk * heads + head
    tl.store(out + place, tl.sum(total, axis=0), mask=head < heads)


@triton.jit
def gather_chunks_kernel(row, chunk_pointer, partial, out, heads, B: tl.constexpr):
    """Add the chunks of every long row, in their order, to what the row has already."""
    index = tl.program_id(0)
    head = tl.program_id(1) * B + tl.arange(0, B)
    mask = head < heads
    place = out + tl.load(row + index) * heads + head
    total = tl.load(place, mask=mask, other=0.0)
    for chunk in range(tl.load(chunk_pointer + index), tl.load(chunk_pointer + index + 1)):
        total += tl.load(partial + chunk * heads + head, mask=mask, other=0.0)
    tl.store(place, total, mask=mask)


@triton.jit
def edge_product_kernel(row, column, u, x, out, edges, heads, LONG: tl.constexpr, E: tl.constexpr, B: tl.constexpr):
    edge = places(tl.program_id(0), LONG) * E + tl.arange(0, E)
    head = tl.program_id(1) * B + tl.arange(0, B)
    alive = edge < edges
    mask = alive[:, None] & (head < heads)[None, :]
    left = places(tl.load(row + edge, mask=alive, other=0), LONG)[:, None] * heads + head[None, :]
    right = places(tl.load(column + edge, mask=alive, other=0), LONG)[:, None] * heads + head[None, :]
    product = tl.load(u + left, mask=mask, other=0.0).to(out.dtype.element_ty) * tl.load(x + right, mask=mask, other=0.0)
    tl.store(out + edge[:, None] * heads + head[None, :], product, mask=mask)


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
