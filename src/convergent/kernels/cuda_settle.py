"""Certified solves of small graphs, each whole in one program: a graph and a block of heads stay on one multiprocessor.

Deflated steps in float64, which this hardware does at half the speed of float32, so that there is nothing to refine: a step knows
the true defect, and with it the certificate. With r = W x + b - x and s = W 1, a constant a added to x changes r by -a (1 - s);
the one that makes its mean vanish is a = mean(r) / (1 - mean(s)), and the step from there is x + r + a s. Every head has its own a,
stops when it is certified, and falls back to plain steps, which are certain to converge, when it does worse than they would.
"""

from __future__ import annotations

import triton
import triton.language as tl

from convergent.kernels.cuda_rows import places

UNROLL = tl.constexpr(4)


@triton.jit
def product(pointer, column, order, weight, x, row, end, head, heads, PERMUTED: tl.constexpr, ONES: tl.constexpr,
            LONG: tl.constexpr, R: tl.constexpr, B: tl.constexpr):  # fmt: skip
    """W x of R rows in float64, or the sums of the rows (ONES). Lanes are heads and every one walks along its row."""
    alive = row < end
    begin = tl.load(pointer + row, mask=alive, other=0).to(tl.int32)
    length = tl.load(pointer + row + 1, mask=alive, other=0).to(tl.int32) - begin
    total = tl.zeros([R, B], tl.float64)
    longest = tl.max(length)
    for start in range(0, longest, UNROLL):
        for ahead in tl.static_range(UNROLL):  # their loads are under way together
            inside = start + ahead < length
            position = begin + start + ahead
            edge = position
            if PERMUTED:
                edge = tl.load(order + position, mask=inside, other=0)
            edge = places(edge, LONG)
            mask = inside[:, None] & (head < heads)[None, :]
            factor = tl.load(weight + edge[:, None] * heads + head[None, :], mask=mask, other=0.0).to(tl.float64)
            if ONES:
                total += factor
            else:
                source = places(tl.load(column + position, mask=inside, other=0), LONG)
                total += factor * tl.load(x + source[:, None] * heads + head[None, :], mask=mask, other=0.0).to(tl.float64)
    return total


@triton.jit
def measured(so_far, values, ONE: tl.constexpr):
    """The norm of what was seen so far, and these values [R, B]; NaN counts as infinite."""
    size = tl.abs(values)
    size = tl.where(size == size, size, float("inf"))
    if ONE:
        return so_far + tl.sum(size, axis=0)
    return tl.maximum(so_far, tl.max(size, axis=0))


@triton.jit
def certified(active, length, size, bias_size, c, factor, goal, rtol, unit, half, first_look):
    """The bound of every lane, who has reached its goal, and who never will."""
    # before there is an answer, |x*| >= |b| / (1 + c)
    scale = tl.where(first_look, tl.maximum(size, bias_size / (1 + c)), size)
    slack = unit * (c * scale + bias_size)
    floor = slack * factor + half * scale
    error = length * factor + floor
    allowed = goal + rtol * scale
    now = active & (error <= allowed)
    hopeless = ((floor > allowed) & (error <= 4 * floor)) | (error == float("inf"))
    return error, now, hopeless


@triton.jit
def settle_kernel(segments, keep, pointer, column, order, weight, bias, start_at, contraction, amplification, tols, x, nodes_of_all,
                  value, residual, bound, met, steps, heads, tol, rtol, unit, half, limit,
                  STARTS: tl.constexpr, KEEPS: tl.constexpr, TIGHT: tl.constexpr, TABLED: tl.constexpr, PERMUTED: tl.constexpr,
                  ONE: tl.constexpr, LONG: tl.constexpr, R: tl.constexpr, B: tl.constexpr):  # fmt: skip
    r, s = x + places(nodes_of_all, LONG) * heads, x + places(2 * nodes_of_all, LONG) * heads
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
    factor = 1 / (1 - c)
    if TIGHT:
        factor = tl.load(amplification + lane, mask=lanes, other=0.0)
    goal = tl.zeros([B], tl.float64) + tol
    if TABLED:
        goal = tl.load(tols + lane, mask=lanes, other=0.0)
    nodes = tl.maximum(last - first, 1).to(tl.float64)

    bias_size = tl.zeros([B], tl.float64)
    sums = tl.zeros([B], tl.float64)
    for top in range(first, last, R):
        row = top + tl.arange(0, R)
        place = row[:, None] * heads + head[None, :]
        mask = (row < last)[:, None] & lanes[None, :]
        bias_size = measured(bias_size, tl.load(bias + place, mask=mask, other=0.0).to(tl.float64), ONE)
        row_sums = product(pointer, column, order, weight, x, row, last, head, heads, PERMUTED, True, LONG, R, B)
        sums += tl.sum(tl.where(mask, row_sums, 0.0), axis=0)
        tl.store(s + place, row_sums, mask=mask)
        if STARTS:
            tl.store(x + place, tl.load(start_at + place, mask=mask, other=0.0).to(tl.float64), mask=mask)
        else:
            tl.store(x + place, tl.zeros([R, B], tl.float64), mask=mask)
    tl.debug_barrier()

    coarse = 1 - sums / nodes
    reached = tl.zeros([B], tl.int1)
    known = tl.full([B], float("inf"), tl.float64)
    before = tl.full([B], float("inf"), tl.float64)
    shifting = tl.full([B], 1, tl.int1)
    taken = 0
    going = tl.sum(active.to(tl.int32), axis=0) > 0
    while going:
        length = tl.zeros([B], tl.float64)
        mean = tl.zeros([B], tl.float64)
        size = tl.zeros([B], tl.float64)
        for top in range(first, last, R):
            row = top + tl.arange(0, R)
            place = row[:, None] * heads + head[None, :]
            mask = (row < last)[:, None] & lanes[None, :]
            here = tl.load(x + place, mask=mask, other=0.0)
            moved = product(pointer, column, order, weight, x, row, last, head, heads, PERMUTED, False, LONG, R, B)
            moved += tl.load(bias + place, mask=mask, other=0.0).to(tl.float64)
            moved = tl.where(mask, moved - here, 0.0)
            tl.store(r + place, moved, mask=mask)
            length = measured(length, moved, ONE)
            size = measured(size, here, ONE)
            mean += tl.sum(moved, axis=0)
        tl.debug_barrier()
        starting = (taken == 0) & (STARTS == 0)
        error, now, hopeless = certified(active, length, size, bias_size, c, factor, goal, rtol, unit, half, starting)
        known = tl.where(active, error, known)
        reached = reached | now
        active = active & (now == 0) & (hopeless == 0)
        shifting = shifting & (length <= c * before)
        before = length
        shift = tl.where(shifting, mean / nodes / coarse, 0.0)
        going = (tl.sum(active.to(tl.int32), axis=0) > 0) & (taken < limit)
        if going:
            for top in range(first, last, R):
                row = top + tl.arange(0, R)
                place = row[:, None] * heads + head[None, :]
                mask = (row < last)[:, None] & active[None, :]
                step = tl.load(r + place, mask=mask, other=0.0) + shift[None, :] * tl.load(s + place, mask=mask, other=0.0)
                tl.store(x + place, tl.load(x + place, mask=mask, other=0.0) + step, mask=mask)
            taken += 1
            tl.debug_barrier()

    # the answer in its own dtype, and what its rounding leaves of the defect
    for top in range(first, last, R):
        row = top + tl.arange(0, R)
        place = row[:, None] * heads + head[None, :]
        mask = (row < last)[:, None] & lanes[None, :]
        tl.store(value + place, tl.load(x + place, mask=mask, other=0.0), mask=mask)
    tl.debug_barrier()
    length = tl.zeros([B], tl.float64)
    for top in range(first, last, R):
        row = top + tl.arange(0, R)
        place = row[:, None] * heads + head[None, :]
        mask = (row < last)[:, None] & lanes[None, :]
        moved = product(pointer, column, order, weight, value, row, last, head, heads, PERMUTED, False, LONG, R, B)
        moved += tl.load(bias + place, mask=mask, other=0.0).to(tl.float64)
        moved -= tl.load(value + place, mask=mask, other=0.0).to(tl.float64)
        length = measured(length, tl.where(mask, moved, 0.0), ONE)
    tl.store(residual + lane, length, mask=lanes)
    tl.store(bound + lane, known, mask=lanes)
    tl.store(met + lane, reached.to(tl.int8), mask=lanes)
    tl.store(steps + graph * tl.num_programs(1) + tl.program_id(1), taken)


@triton.jit
def peaks_kernel(segments, pointer, weight, order, out, heads, PERMUTED: tl.constexpr, LONG: tl.constexpr, R: tl.constexpr,
                 B: tl.constexpr):  # fmt: skip
    """The largest absolute row sum of every graph and head, in float64; NaN stays NaN."""
    graph = tl.program_id(0)
    head = tl.program_id(1) * B + tl.arange(0, B)
    lanes = head < heads
    first, last = tl.load(segments + graph).to(tl.int32), tl.load(segments + graph + 1).to(tl.int32)
    peak = tl.zeros([B], tl.float64)
    broken = tl.zeros([B], tl.float64)
    for top in range(first, last, R):
        row = top + tl.arange(0, R)
        alive = row < last
        begin = tl.load(pointer + row, mask=alive, other=0).to(tl.int32)
        length = tl.load(pointer + row + 1, mask=alive, other=0).to(tl.int32) - begin
        total = tl.zeros([R, B], tl.float64)
        longest = tl.max(length)
        for step in range(0, longest):
            inside = step < length
            edge = begin + step
            if PERMUTED:
                edge = tl.load(order + edge, mask=inside, other=0)
            edge = places(edge, LONG)
            mask = inside[:, None] & lanes[None, :]
            total += tl.abs(tl.load(weight + edge[:, None] * heads + head[None, :], mask=mask, other=0.0).to(tl.float64))
        broken += tl.sum(tl.where(total == total, 0.0, 1.0), axis=0)
        peak = tl.maximum(peak, tl.max(tl.where(total == total, total, 0.0), axis=0))
    tl.store(out + graph * heads + head, tl.where(broken > 0, float("nan"), peak), mask=lanes)
