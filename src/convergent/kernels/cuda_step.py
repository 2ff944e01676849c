"""Steps on graphs of any size: the whole of a step and its residual in one pass, and the decision who goes on made on the device.

With x' = y + a s (s = W 1; a is the constant shift of cuda_settle.py, zero in plain steps) and y = W x + b, the next step is

    y' = W y + b + a t,  t = W s        and        T(x') - x' = y' - y - a s

so that one product serves both the step and its residual. A program takes some rows of one graph and, in steps that are MEASURED,
leaves three numbers per head: the norm of the residual, its sum, and the size of y'. Small kernels add them up, in their order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from convergent.kernels.cuda_launch import Kernel
from convergent.kernels.cuda_rows import places, row_product

LENGTH, SUM, SIZE = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # the three numbers
ROOM = tl.constexpr(4.0)  # how far above plain steps shifted ones may be
PIECES = tl.constexpr(256)  # that are added up at a time


@triton.jit
def tanh(z):
    """Exact to rounding; near zero, where the quotient would cancel, by its series."""
    fall = tl.exp(-2 * tl.abs(z))
    far = (1 - fall) / (1 + fall)
    square = z * z
    series = 1 - square * (1 / 3 - square * (2 / 15 - square * (17 / 315 - square * (62 / 2835 - square * (1382 / 155925)))))
    return tl.where(tl.abs(z) < 0.05, z * series, tl.where(z < 0, -far, far))


@triton.jit
def activated(z, NAME: tl.constexpr):
    """The activations of activations.py."""
    if NAME == "relu":
        z = tl.where(z < 0, 0.0, z)  # NaN stays
    elif NAME == "leaky_relu":
        z = tl.where(z < 0, 0.01 * z, z)
    elif NAME == "tanh":
        z = tanh(z)
    elif NAME == "elu":
        below = tl.where(z < 0, z, 0.0)
        z = tl.where(z < 0, tanh(below / 2) * (tl.exp(below) + 1), z)
    elif NAME == "softsign":
        z = z / (1 + tl.abs(z))
    elif NAME == "silu":
        z = z / (1 + tl.exp(-z))
    elif NAME == "mish":
        grown = tl.exp(tl.where(z > 20, 20.0, z))
        square = grown * (grown + 2)  # tanh(log(1 + e^z)) = square / (square + 2)
        z = z * (square / (square + 2))
    elif NAME == "gelu":
        z = 0.5 * z * (1 + tl.erf(z * 0.7071067811865476))
    return z


@triton.jit
def grown(so_far, values, ONE: tl.constexpr):
    """The norm of what was seen so far and these values, entry by entry; NaN counts as infinite."""
    size = tl.abs(values)
    size = tl.where(size == size, size, float("inf"))
    return so_far + size if ONE else tl.maximum(so_far, size)


@triton.jit
def over_rows(values, ONE: tl.constexpr):
    return tl.sum(values, axis=0) if ONE else tl.max(values, axis=0)


@triton.jit
def enveloped(envelope, length):
    """The residual above which a lane takes plain steps: a few times that of its first step, and as small as they would make it.

    A shifted step may be a bad one, at the beginning above all; below the envelope all is well, above it convergence is certain.
    """
    return tl.where(envelope == float("inf"), ROOM * length, envelope)


@triton.jit
def step_kernel(first, last, owner, live, pointer, column, weight, bias, y, sums, image, shift, out, partial, rows, heads, heavy,
                ACTIVATION: tl.constexpr, SHIFTED: tl.constexpr, ONE: tl.constexpr, HUBS: tl.constexpr, WIDE: tl.constexpr,
                LONG: tl.constexpr, R: tl.constexpr, D: tl.constexpr, U: tl.constexpr, B: tl.constexpr,
                SINGLE: tl.constexpr, MEASURED: tl.constexpr):  # fmt: skip
    """A step of some rows from ``y`` to ``out``, of a graph that is live; long rows (HUBS) are in ``out`` already.

    A SINGLE graph needs no tables to know its pieces by.
    """
    piece = tl.program_id(0)
    head = tl.program_id(1) * B + tl.arange(0, B)
    lanes = head < heads
    graph, top, end = 0, piece * R, rows
    if not SINGLE:
        graph, top, end = tl.load(owner + piece), tl.load(first + piece), tl.load(last + piece)
    row = places(top + tl.arange(0, R), LONG)
    alive = row < end
    begin = places(tl.load(pointer + row, mask=alive, other=0), LONG)
    length = (tl.load(pointer + row + 1, mask=alive, other=0) - begin).to(tl.int32)
    goes_on = tl.load(live + graph) != 0  # not asked before: nothing has to wait for the answer
    length = tl.where(goes_on, length, 0)
    lanes = lanes & goes_on
    place = row[:, None] * heads + head[None, :]
    mask = alive[:, None] & lanes[None, :]
    short = tl.where(length > heavy, 0, length) if HUBS else length
    total = row_product(weight, column, column, y, begin, short, head, heads, False, False, False, WIDE, LONG, R, D, U, B)
    total += tl.load(bias + place, mask=mask, other=0.0).to(total.dtype)
    if HUBS:
        total += tl.load(out + place, mask=mask & (length > heavy)[:, None], other=0.0)
    if SHIFTED:
        a = tl.load(shift + graph * heads + head, mask=lanes, other=0.0).to(total.dtype)[None, :]
        total += a * tl.load(image + place, mask=mask, other=0.0)
    total = activated(total, ACTIVATION)
    tl.store(out + place, total, mask=mask)
    if MEASURED:
        before = tl.load(y + place, mask=mask, other=0.0)
        if SHIFTED:
            before += a * tl.load(sums + place, mask=mask, other=0.0)
        moved = tl.where(mask, total - before, 0.0)
        nothing = tl.zeros([R, B], total.dtype)
        found = partial + 3 * piece.to(tl.int64) * heads + head
        tl.store(found + LENGTH * heads, over_rows(grown(nothing, moved, ONE), ONE), mask=lanes)
        tl.store(found + SIZE * heads, over_rows(grown(nothing, tl.where(mask, total, 0.0), ONE), ONE), mask=lanes)
        if SHIFTED:
            tl.store(found + SUM * heads, tl.sum(moved, axis=0), mask=lanes)


@triton.jit
def total_of(partial, WHICH: tl.constexpr, first, last, head, heads, MAXIMUM: tl.constexpr, B: tl.constexpr):
    total = tl.zeros([PIECES, B], tl.float64)
    for start in range(first, last, PIECES):
        piece = start + tl.arange(0, PIECES)
        mask = (piece < last)[:, None] & (head < heads)[None, :]
        value = tl.load(partial + (3 * piece[:, None] + WHICH) * heads + head[None, :], mask=mask, other=0.0)
        total = tl.maximum(total, value) if MAXIMUM else total + value
    return tl.max(total, axis=0) if MAXIMUM else tl.sum(total, axis=0)


@triton.jit
def gather_kernel(pointer, partial, out, heads, groups, ONE: tl.constexpr, SHIFTED: tl.constexpr, SHARE: tl.constexpr,
                  B: tl.constexpr):  # fmt: skip
    """Pieces of a graph to fewer, SHARE to one: [pieces, 3, H] -> [groups, 3, H], a graph's groups one after the other."""
    graph, group = tl.program_id(0) // groups, tl.program_id(0) % groups
    first, last = tl.load(pointer + graph).to(tl.int64), tl.load(pointer + graph + 1).to(tl.int64)
    first += group * SHARE
    last = tl.minimum(first + SHARE, last)
    head = tl.program_id(1) * B + tl.arange(0, B)
    place, mask = out + 3 * tl.program_id(0) * heads + head, head < heads
    tl.store(place + LENGTH * heads, total_of(partial, LENGTH, first, last, head, heads, not ONE, B), mask=mask)
    tl.store(place + SIZE * heads, total_of(partial, SIZE, first, last, head, heads, not ONE, B), mask=mask)
    if SHIFTED:
        tl.store(place + SUM * heads, total_of(partial, SUM, first, last, head, heads, False, B), mask=mask)


@triton.jit
def decide_kernel(pointer, partial, contraction, goal, envelope, coarse, shift, live, steps, heads, taken, epsilon: tl.float64,
                  SHIFTED: tl.constexpr, ONE: tl.constexpr, B: tl.constexpr):  # fmt: skip
    """What steps, ``taken`` since the last decision, brought to a graph that is live: whether it goes on, and shifted how far.

    A lane (a head of this graph) is done when its residual, after one step more, is within its goal, cannot shrink because of
    rounding, or is no number. ``coarse`` [G, H] is nodes * (1 - mean of s); ``envelope`` [G, H] what plain steps would have left.
    """
    graph = tl.program_id(0)
    if tl.load(live + graph) != 0:
        first, last = tl.load(pointer + graph).to(tl.int64), tl.load(pointer + graph + 1).to(tl.int64)
        open_lanes = 0
        for block in range(0, heads, B):
            head = block + tl.arange(0, B)
            lanes, lane = head < heads, graph * heads + head
            c = tl.load(contraction + lane, mask=lanes, other=0.0)
            length = total_of(partial, LENGTH, first, last, head, heads, not ONE, B)
            size = total_of(partial, SIZE, first, last, head, heads, not ONE, B)
            wanted = tl.load(goal + lane, mask=lanes, other=0.0)
            done = (c * length <= wanted) | (length <= 2 * epsilon * size) | (length == float("inf"))
            open_lanes += tl.sum((lanes & (done == 0)).to(tl.int32), axis=0)
            if SHIFTED:
                base = tl.load(coarse + lane, mask=lanes, other=0.0)
                above = enveloped(tl.load(envelope + lane, mask=lanes, other=0.0), length)
                tl.store(envelope + lane, c * above, mask=lanes)
                total = total_of(partial, SUM, first, last, head, heads, False, B)
                moving = (base > 0) & (done == 0) & (length <= above)
                tl.store(shift + lane, tl.where(moving, total / tl.where(moving, base, 1.0), 0.0), mask=lanes)
        tl.store(steps + graph, tl.load(steps + graph) + taken)
        tl.store(live + graph, tl.where(open_lanes > 0, 1, 0))


step, gather, decide = Kernel(step_kernel), Kernel(gather_kernel), Kernel(decide_kernel)
