"""Triton kernels of ``certificate``, where every graph is small enough for one program: one launch each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convergent.kernels import cuda, reference
from convergent.kernels.cuda_launch import Kernel
from convergent.kernels.cuda_rows import places
from convergent.kernels.cuda_settle import longest_row, product, tile
from convergent.kernels.cuda_step import grown, over_rows
from convergent.kernels.reference import Accuracy, Rows, Settled

UNMET = tl.constexpr(reference.UNMET)


@triton.jit
def certify_kernel(segments, pointer, column, order, weight, bias, x, contraction, amplification, tols, value, residual, bound,
                   status, nodes_of_all, heads, tol: tl.float64, rtol: tl.float64, unit: tl.float64, TABLED: tl.constexpr,
                   PERMUTED: tl.constexpr, ONE: tl.constexpr, LONG: tl.constexpr, ROUNDED: tl.constexpr, R: tl.constexpr,
                   B: tl.constexpr):  # fmt: skip
    """``certificate.certify``, a graph and a block of heads per program."""
    operator = (pointer, column, order, weight)
    graph = tl.program_id(0)
    head = tl.program_id(1) * B + tl.arange(0, B)
    lanes, lane = head < heads, graph * heads + head
    first, last = places(tl.load(segments + graph), LONG), places(tl.load(segments + graph + 1), LONG)
    longest = longest_row(pointer, first, last, R)
    c = tl.load(contraction + lane, mask=lanes, other=0.0)
    factor = tl.load(amplification + lane, mask=lanes, other=0.0)
    lengths, sizes, bias_sizes = tl.zeros([R, B], tl.float64), tl.zeros([R, B], tl.float64), tl.zeros([R, B], tl.float64)
    for top in range(first, last, R):
        row, place, mask = tile(top, last, head, heads, R)
        here = tl.load(x + place, mask=mask, other=0.0)
        right = tl.load(bias + place, mask=mask, other=0.0).to(tl.float64)
        moved = product(operator, x, row, last, longest, head, heads, PERMUTED, False, False, True, LONG, R, B) + right
        lengths = grown(lengths, tl.where(mask, moved - here, 0.0), ONE)
        sizes = grown(sizes, here, ONE)
        bias_sizes = grown(bias_sizes, right, ONE)
        if ROUNDED:
            tl.store(value + place, here, mask=mask)
    length, size, bias_size = over_rows(lengths, ONE), over_rows(sizes, ONE), over_rows(bias_sizes, ONE)
    error = (length + unit * (c * size + bias_size)) * factor
    if ROUNDED:
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
        own = (length + unit * (c * size + bias_size)) * factor
        error = tl.minimum(own, error + over_rows(distances, ONE))
    goal = tl.zeros([B], tl.float64) + tol
    if TABLED:
        goal = tl.load(tols + lane, mask=lanes, other=0.0)
    error = tl.where((first == last) | (error != error), tl.where(first == last, 0.0, float("inf")), error)
    met = (error <= goal + rtol * size) & (error < float("inf"))
    tl.store(residual + lane, length, mask=lanes)
    tl.store(bound + lane, error, mask=lanes)
    tl.store(status + lane, tl.where(met, 0, UNMET).to(tl.int8), mask=lanes)


@triton.jit
def tight_kernel(segments, pointer, column, order, weight, v, contraction, out, heads, unit: tl.float64, PERMUTED: tl.constexpr,
                   LONG: tl.constexpr, R: tl.constexpr, B: tl.constexpr):  # fmt: skip
    """``certificate.tight``, a graph and a block of heads per program."""
    operator = (pointer, column, order, weight)
    graph = tl.program_id(0)
    head = tl.program_id(1) * B + tl.arange(0, B)
    lanes, lane = head < heads, graph * heads + head
    first, last = places(tl.load(segments + graph), LONG), places(tl.load(segments + graph + 1), LONG)
    longest = longest_row(pointer, first, last, R)
    worst, sizes, least = tl.zeros([R, B], tl.float64), tl.zeros([R, B], tl.float64), tl.full([R, B], float("inf"), tl.float64)
    for top in range(first, last, R):
        row, place, mask = tile(top, last, head, heads, R)
        here = tl.load(v + place, mask=mask, other=1.0)
        moved = product(operator, v, row, last, longest, head, heads, PERMUTED, True, False, True, LONG, R, B) + 1.0 - here
        worst = grown(worst, tl.where(mask & (moved > 0), moved, 0.0), False)
        sizes = grown(sizes, tl.where(mask, here, 0.0), False)
        least = tl.minimum(least, tl.where(here == here, here, -1.0))
    c = tl.load(contraction + lane, mask=lanes, other=0.0)
    largest = over_rows(sizes, False)
    gap = 1 - over_rows(worst, False) - unit * (c * largest + 1)  # a lower bound on min(v - |W| v)
    proven = (gap > 0) & (tl.min(least, axis=0) > 0) & (largest < float("inf"))
    tl.store(out + lane, tl.where(proven, largest / gap, float("inf")), mask=lanes)


certify_program, tight_program = Kernel(certify_kernel), Kernel(tight_kernel)


def _shape(rows: Rows, segments: Tensor, nodes: int, heads: int) -> tuple[tuple[int, int], tuple[int, int], int, bool]:
    r, b, warps = cuda._lanes_of(heads)
    grid = (segments.shape[0] - 1, cuda._parts(heads, b))
    return grid, (r, b), warps, cuda._long(max(rows.column.shape[0], nodes), heads)


def certify(rows: Rows, segments: Tensor, weight: Tensor, bias: Tensor, x: Tensor, norm: str, accuracy: Accuracy) -> Settled:
    contraction, amplification, tol, rtol, unit, wide, _, _, _ = accuracy
    assert amplification is not None
    nodes, heads = x.shape
    grid, shape, warps, long = _shape(rows, segments, nodes, heads)
    rounded = bias.dtype != torch.float64 and not wide
    value = torch.empty_like(bias) if rounded else x
    residual, bound = (torch.empty_like(contraction) for _ in range(2))
    status = torch.empty(contraction.shape, dtype=torch.int8, device=x.device)
    table, fixed = (tol.contiguous(), 0.0) if isinstance(tol, Tensor) else (contraction, float(tol))
    order = rows.column if rows.order is None else rows.order
    tensors = (
        segments, rows.pointer, rows.column, order, weight.contiguous(), bias.contiguous(), x, contraction.contiguous(),
        amplification.contiguous(), table, value, residual, bound, status,
    )  # fmt: skip
    constants = (isinstance(tol, Tensor), rows.order is not None, norm == "one", long, rounded, *shape)
    certify_program(grid, tensors, (nodes, heads, fixed, float(rtol), float(unit)), constants, warps)
    steps = torch.ones(len(contraction), dtype=torch.long, device=x.device)
    return Settled(value, residual, bound, status, steps)


def tight(rows: Rows, segments: Tensor, weight: Tensor, v: Tensor, contraction: Tensor, unit: float) -> Tensor:
    nodes, heads = v.shape
    grid, shape, warps, long = _shape(rows, segments, nodes, heads)
    out = torch.empty_like(contraction)
    order = rows.column if rows.order is None else rows.order
    tensors = (segments, rows.pointer, rows.column, order, weight.contiguous(), v.contiguous(), contraction.contiguous(), out)
    tight_program(grid, tensors, (heads, float(unit)), (rows.order is not None, long, *shape), warps)
    return out
