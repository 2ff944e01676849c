"""Certified solves of small graphs, each whole in one program: a graph and a block of heads stay on one multiprocessor.

With r = W x + b - x and s = W 1, a constant a added to x changes r by -a (1 - s); the one that makes its mean vanish is
a = mean(r) / (1 - mean(s)), and the step from there is x + r + a s. Every head has its own a, and falls back to plain steps, which
are certain to converge, while it does much worse than they would.

An answer in float32 is approached in float32, in the form of cuda_step.py. What follows is in float64, so that there is nothing to
refine: a step knows the true defect, and with it the certificate; every head stops when it has one.
"""

from __future__ import annotations

import triton
import triton.language as tl

from convergent.kernels import reference
from convergent.kernels.cuda_launch import Kernel
from convergent.kernels.cuda_rows import places
from convergent.kernels.cuda_step import enveloped, grown, over_rows

UNROLL = tl.constexpr(4)
UNMET, TRIAL = tl.constexpr(reference.UNMET), tl.constexpr(reference.TRIAL)
EPSILON = tl.constexpr(2.0**-23)  # of float32
X, DEFECT, SUMS, BUFFERS = (tl.constexpr(index) for index in range(4))  # tables of the scratch in float64
EVEN, ODD, QUICK_SUMS, IMAGE, QUICK_BUFFERS = (tl.constexpr(index) for index in range(5))  # and of that in float32


@triton.jit
def tile(top, last, head, heads, R: tl.constexpr):
    """The rows of a tile, their places in a table, and which of them there are."""
    row = top + tl.arange(0, R)
    return row, row[:, None] * heads + head[None, :], (row < last)[:, None] & (head < heads)[None, :]


@triton.jit
def longest_row(pointer, first, last, R: tl.constexpr):
    longest = tl.zeros([R], tl.int32)
    for top in range(first, last, R):
        row = top + tl.arange(0, R)
        begin = tl.load(pointer + row, mask=row < last, other=0).to(tl.int32)
        longest = tl.maximum(longest, tl.load(pointer + row + 1, mask=row < last, other=0).to(tl.int32) - begin)
    return tl.max(longest)


@triton.jit
def product(operator, x, row, end, longest, head, heads, PERMUTED: tl.constexpr, ABSOLUTE: tl.constexpr, ONES: tl.constexpr,
            WIDE: tl.constexpr, LONG: tl.constexpr, R: tl.constexpr, B: tl.constexpr):  # fmt: skip
    """W x of R rows, or the sums of the rows (ONES), of |W| (ABSOLUTE). Lanes are heads and every one walks along its row."""
    pointer, column, order, weight = operator
    alive = row < end
    begin = tl.load(pointer + row, mask=alive, other=0).to(tl.int32)
    length = tl.load(pointer + row + 1, mask=alive, other=0).to(tl.int32) - begin
    total = tl.zeros([R, B], tl.float64 if WIDE else tl.float32)
    for start in range(0, longest, UNROLL):
        for ahead in tl.static_range(UNROLL):  # their loads are under way together
            inside = start + ahead < length
            position = begin + start + ahead
            edge = position
            if PERMUTED:
                edge = tl.load(order + position, mask=inside, other=0)
            edge = places(edge, LONG)
            mask = inside[:, None] & (head < heads)[None, :]
            factor = tl.load(weight + edge[:, None] * heads + head[None, :], mask=mask, other=0.0).to(total.dtype)
            if ABSOLUTE:
                factor = tl.abs(factor)
            if not ONES:
                source = places(tl.load(column + position, mask=inside, other=0), LONG)
                factor *= tl.load(x + source[:, None] * heads + head[None, :], mask=mask, other=0.0).to(total.dtype)
            total += factor
    return total


@triton.jit
def certified(active, length, size, bias_size, c, factor, goal, rtol, unit, half, first_look):
    """The bound on the error of x in every lane, who has reached its goal, and who never will.

    When x becomes the answer it is rounded, by at most ``half`` of its size.
    """
    # before there is an answer, |x*| >= |b| / (1 + c)
    scale = tl.where(first_look, tl.maximum(size, bias_size / (1 + c)), size)
    floor = unit * (c * scale + bias_size) * factor
    error = tl.where(c < 1, length * factor + floor, float("inf"))
    rounds, allowed = half * scale, goal + rtol * scale
    now = active & (error + rounds <= goal + rtol * size) & (error < float("inf"))
    floor += rounds
    hopeless = ((floor > allowed) & (error + rounds <= 4 * floor)) | (error == float("inf"))
    return error, now, hopeless


@triton.jit
def approach(operator, bias, sums, quick, first, last, longest, head, heads, stride, coarse, c, wanted, bias_size, limit,
             PERMUTED: tl.constexpr, ONE: tl.constexpr, LONG: tl.constexpr, R: tl.constexpr, B: tl.constexpr):  # fmt: skip
    """Shifted steps in float32 from zero, to what is wanted of the residual or to where rounding begins: where y is, and steps.

    All lanes go on until the last is there; as many steps as the slowest contraction may need are enough.
    """
    even, s, t = quick + EVEN * stride, quick + QUICK_SUMS * stride, quick + IMAGE * stride  # the odd one is next to the even one
    mean = tl.zeros([B], tl.float32)
    for top in range(first, last, R):
        row, place, mask = tile(top, last, head, heads, R)
        here = tl.load(bias + place, mask=mask, other=0.0)
        tl.store(even + place, here, mask=mask)
        mean += tl.sum(here, axis=0)
        tl.store(s + place, tl.load(sums + place, mask=mask, other=0.0), mask=mask)
    tl.debug_barrier()
    for top in range(first, last, R):
        row, place, mask = tile(top, last, head, heads, R)
        image = product(operator, s, row, last, longest, head, heads, PERMUTED, False, False, False, LONG, R, B)
        tl.store(t + place, image, mask=mask)
    floor = tl.maximum(wanted, 4 * EPSILON * bias_size)  # c, wanted and sizes are in float64
    # a lane without a bias is there; one that does not contract, or is not finite, is not to be waited for
    needed = tl.where((bias_size > 0) & (bias_size < float("inf")) & (c > 0) & (c < 1), tl.log(floor / bias_size) / tl.log(c), 0.0)
    budget = tl.minimum(tl.max(needed), tl.cast(limit, tl.float64))
    shift = tl.where(coarse > 0, mean / coarse, 0.0).to(tl.float32)
    envelope = tl.full([B], float("inf"), tl.float32)
    slope = c.to(tl.float32)
    taken = 0
    going = budget > 0
    while going:
        y = even + (taken % 2) * stride
        z = even + ((taken + 1) % 2) * stride
        lengths, sizes, means = tl.zeros([R, B], tl.float32), tl.zeros([R, B], tl.float32), tl.zeros([R, B], tl.float32)
        tl.debug_barrier()
        for top in range(first, last, R):
            row, place, mask = tile(top, last, head, heads, R)
            moved = product(operator, y, row, last, longest, head, heads, PERMUTED, False, False, False, LONG, R, B)
            moved += tl.load(bias + place, mask=mask, other=0.0) + shift[None, :] * tl.load(t + place, mask=mask, other=0.0)
            tl.store(z + place, moved, mask=mask)
            here = tl.load(y + place, mask=mask, other=0.0) + shift[None, :] * tl.load(s + place, mask=mask, other=0.0)
            gone = tl.where(mask, moved - here, 0.0)
            lengths = grown(lengths, gone, ONE)
            sizes = grown(sizes, tl.where(mask, moved, 0.0), ONE)
            means += gone
        length, size = over_rows(lengths, ONE), over_rows(sizes, ONE)
        still = (slope * length > wanted.to(tl.float32)) & (length > 4 * EPSILON * size) & (length < float("inf"))
        envelope = enveloped(envelope, length)
        shift = tl.where((coarse > 0) & (length <= envelope), tl.sum(means, axis=0) / coarse, 0.0).to(tl.float32)
        envelope *= slope
        taken += 1
        going = (tl.sum((still & (head < heads)).to(tl.int32), axis=0) > 0) & (taken < budget)
    return taken


@triton.jit
def settle_kernel(segments, keep, pointer, column, order, weight, bias, start_at, contraction, amplification, tols, scratch, quick,
                  value, residual, bound, status, steps, nodes_of_all, heads, limit, tol: tl.float64, rtol: tl.float64,
                  unit: tl.float64, half: tl.float64, gap: tl.float64, near: tl.float64, STARTS: tl.constexpr, KEEPS: tl.constexpr,
                  TIGHT: tl.constexpr, TABLED: tl.constexpr, PERMUTED: tl.constexpr, ONE: tl.constexpr, LONG: tl.constexpr,
                  APPROACHED: tl.constexpr, R: tl.constexpr, B: tl.constexpr):  # fmt: skip
    operator = (pointer, column, order, weight)
    stride = places(nodes_of_all, LONG) * heads
    x, r, s = scratch + X * stride, scratch + DEFECT * stride, scratch + SUMS * stride
    graph = tl.program_id(0)
    head = tl.program_id(1) * B + tl.arange(0, B)
    lanes = head < heads
    lane = graph * heads + head
    first, last = places(tl.load(segments + graph), LONG), places(tl.load(segments + graph + 1), LONG)
    active = lanes
    if KEEPS:
        kept = tl.load(keep + graph) != 0
        last = tl.where(kept, last, first)
        active = lanes & kept
    c = tl.load(contraction + lane, mask=lanes, other=0.0)
    limit = tl.where(tl.max(c) > near, tl.minimum(limit, TRIAL), limit)
    factor = (1 + gap) / (1 - c)
    if TIGHT:
        factor = tl.load(amplification + lane, mask=lanes, other=0.0)
    goal = tl.zeros([B], tl.float64) + tol
    if TABLED:
        goal = tl.load(tols + lane, mask=lanes, other=0.0)
    nodes = tl.maximum(last - first, 1).to(tl.float64)
    longest = longest_row(pointer, first, last, R)

    bias_sizes = tl.zeros([R, B], tl.float64)
    sums = tl.zeros([R, B], tl.float64)
    for top in range(first, last, R):
        row, place, mask = tile(top, last, head, heads, R)
        bias_sizes = grown(bias_sizes, tl.load(bias + place, mask=mask, other=0.0).to(tl.float64), ONE)
        row_sums = product(operator, x, row, last, longest, head, heads, PERMUTED, False, True, True, LONG, R, B)
        sums += tl.where(mask, row_sums, 0.0)
        tl.store(s + place, row_sums, mask=mask)
        if STARTS:
            tl.store(x + place, tl.load(start_at + place, mask=mask, other=0.0).to(tl.float64), mask=mask)
        else:
            tl.store(x + place, tl.zeros([R, B], tl.float64), mask=mask)
    tl.debug_barrier()
    bias_size = over_rows(bias_sizes, ONE)
    coarse = nodes - tl.sum(sums, axis=0)

    taken = 0
    if APPROACHED:
        # half of what is allowed: a step in float64, which there has to be, brings the rest
        wanted = 0.5 * (goal + rtol * bias_size / (1 + c)) / factor
        taken = approach(operator, bias, s, quick, first, last, longest, head, heads, stride, coarse, c, wanted, bias_size, limit,
                         PERMUTED, ONE, LONG, R, B)  # fmt: skip
        tl.debug_barrier()
        near = quick + (taken % 2) * stride
        if taken > 0:
            for top in range(first, last, R):
                row, place, mask = tile(top, last, head, heads, R)
                tl.store(x + place, tl.load(near + place, mask=mask, other=0.0).to(tl.float64), mask=mask)
            tl.debug_barrier()

    asked = active
    known = tl.full([B], float("inf"), tl.float64)
    envelope = tl.full([B], float("inf"), tl.float64)
    going = tl.sum(active.to(tl.int32), axis=0) > 0
    while going:
        lengths, means, sizes = tl.zeros([R, B], tl.float64), tl.zeros([R, B], tl.float64), tl.zeros([R, B], tl.float64)
        for top in range(first, last, R):
            row, place, mask = tile(top, last, head, heads, R)
            here = tl.load(x + place, mask=mask, other=0.0)
            moved = product(operator, x, row, last, longest, head, heads, PERMUTED, False, False, True, LONG, R, B)
            moved += tl.load(bias + place, mask=mask, other=0.0).to(tl.float64)
            moved = tl.where(mask, moved - here, 0.0)
            tl.store(r + place, moved, mask=mask)
            lengths = grown(lengths, moved, ONE)
            sizes = grown(sizes, here, ONE)
            means += moved
        length, size = over_rows(lengths, ONE), over_rows(sizes, ONE)
        starting = (taken == 0) & (STARTS == 0)
        error, now, hopeless = certified(active, length, size, bias_size, c, factor, goal, rtol, unit, half, starting)
        known = tl.where(active, error, known)
        active = active & (now == 0) & (hopeless == 0)
        envelope = enveloped(envelope, length)
        shift = tl.where((coarse > 0) & (length <= envelope), tl.sum(means, axis=0) / coarse, 0.0)
        envelope *= c
        going = (tl.sum(active.to(tl.int32), axis=0) > 0) & (taken < limit)
        if going:
            tl.debug_barrier()
            for top in range(first, last, R):
                row, place, mask = tile(top, last, head, heads, R)
                mask = mask & active[None, :]
                step = tl.load(r + place, mask=mask, other=0.0) + shift[None, :] * tl.load(s + place, mask=mask, other=0.0)
                tl.store(x + place, tl.load(x + place, mask=mask, other=0.0) + step, mask=mask)
            taken += 1
            tl.debug_barrier()

    # the answer in its own dtype, how far x is from it, and what it leaves of the defect
    tl.debug_barrier()
    for top in range(first, last, R):
        row, place, mask = tile(top, last, head, heads, R)
        tl.store(value + place, tl.load(x + place, mask=mask, other=0.0), mask=mask)
    tl.debug_barrier()
    lengths, sizes, distances = tl.zeros([R, B], tl.float64), tl.zeros([R, B], tl.float64), tl.zeros([R, B], tl.float64)
    for top in range(first, last, R):
        row, place, mask = tile(top, last, head, heads, R)
        answer = tl.load(value + place, mask=mask, other=0.0).to(tl.float64)
        moved = product(operator, value, row, last, longest, head, heads, PERMUTED, False, False, True, LONG, R, B)
        moved += tl.load(bias + place, mask=mask, other=0.0).to(tl.float64)
        lengths = grown(lengths, tl.where(mask, moved - answer, 0.0), ONE)
        sizes = grown(sizes, answer, ONE)
        distances = grown(distances, tl.load(x + place, mask=mask, other=0.0) - answer, ONE)
    length, size = over_rows(lengths, ONE), over_rows(sizes, ONE)
    own = tl.where(c < 1, (length + unit * (c * size + bias_size)) * factor, float("inf"))
    error = tl.minimum(own, known + over_rows(distances, ONE))
    allowed = goal + rtol * size
    met = asked & (error <= allowed) & (error < float("inf"))
    # reference.clear_of: a bound that is not met is above what is allowed
    error = tl.where(met | (error > allowed * (1 + 4 * gap)), error, allowed * (1 + 4 * gap))
    error = tl.where(asked & (error == error), error, float("inf"))
    tl.store(residual + lane, length, mask=lanes)
    tl.store(bound + lane, error, mask=lanes)
    tl.store(status + lane, tl.where(met, 0, UNMET).to(tl.int8), mask=lanes)
    tl.atomic_max(steps + graph, tl.cast(taken, tl.int64))  # over blocks of heads


@triton.jit
def peaks_kernel(segments, pointer, order, weight, out, heads, wider: tl.float64, PERMUTED: tl.constexpr, LONG: tl.constexpr,
                 R: tl.constexpr, B: tl.constexpr):  # fmt: skip
    """The largest absolute row sum of every graph and head times ``wider``, in float64; NaN stays NaN."""
    graph = tl.program_id(0)
    head = tl.program_id(1) * B + tl.arange(0, B)
    first, last = tl.load(segments + graph).to(tl.int32), tl.load(segments + graph + 1).to(tl.int32)
    operator, longest = (pointer, order, order, weight), longest_row(pointer, first, last, R)
    peaks, broken = tl.zeros([R, B], tl.float64), tl.zeros([R, B], tl.int32)
    for top in range(first, last, R):
        row = top + tl.arange(0, R)
        sums = product(operator, weight, row, last, longest, head, heads, PERMUTED, True, True, True, LONG, R, B)
        broken += tl.where(sums == sums, 0, 1)
        peaks = grown(peaks, sums, False)
    peak = tl.where(tl.sum(broken, axis=0) > 0, float("nan"), wider * tl.max(peaks, axis=0))
    tl.store(out + graph * heads + head, peak, mask=head < heads)


settle, peaks = Kernel(settle_kernel), Kernel(peaks_kernel)
