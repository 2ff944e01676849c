"""The kernels of CUDA: the launches of the Triton kernels in cuda_*.py, and plain torch where that is as good.

What a launch needs to know of a structure (how long rows are, where segments are cut) is read from the device once and kept.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from convergent.kernels import cuda_rows, cuda_settle
from convergent.kernels.activations import ACTIVATIONS
from convergent.kernels.reference import (
    Accuracy,
    Rows,
    Settled,
    aggregate,
    blend,
    combine,
    dense,
    group,
    lu_solve,
    ordered,
    reach,
)

__all__ = [
    "aggregate",
    "all_finite",
    "arrange",
    "blend",
    "combine",
    "defect",
    "deflated",
    "dense",
    "edge_product",
    "group",
    "lu_solve",
    "ordered",
    "picard",
    "propagate",
    "reach",
    "relax",
    "restrict",
    "row_peaks",
    "segment_dot",
    "segment_reduce",
    "settle",
    "worst",
]

HEAVY = 1024  # positions of a row above which it is cut into chunks of so many
PIECE = 4096  # rows of a segment that one program reduces
TILE = 2048  # numbers in a tile


# --- what is known of a structure ---


class Plan(NamedTuple):
    """How the rows of a structure are cut up."""

    typical: int  # positions of a row, a power of two
    heavy: Tensor | None  # [K] rows that are cut into chunks; None: there is none
    chunk_pointer: Tensor | None  # [K + 1]
    chunk_first: Tensor | None  # [chunks]
    chunk_last: Tensor | None


_plans = WeakTensorKeyDictionary()
_pieces = WeakTensorKeyDictionary()


def plan_of(rows: Rows) -> Plan:
    found = _plans.get(rows.pointer)
    if found is None:
        found = _plans[rows.pointer] = _plan(rows)
    return found


def _plan(rows: Rows) -> Plan:
    pointer = rows.pointer.long()
    lengths = pointer.diff()
    if not len(lengths) or not len(rows.column):
        return Plan(1, None, None, None, None)
    typical = triton.next_power_of_2(max(round(len(rows.column) / len(lengths)), 1))
    if int(lengths.max()) <= HEAVY:
        return Plan(typical, None, None, None, None)
    heavy = (lengths > HEAVY).nonzero().squeeze(1)
    count = (lengths[heavy] + HEAVY - 1) // HEAVY
    chunk_pointer = torch.nn.functional.pad(count.cumsum(0), (1, 0))
    owner = torch.repeat_interleave(torch.arange(len(heavy), device=pointer.device), count)
    first = pointer[heavy][owner] + HEAVY * (torch.arange(len(owner), device=pointer.device) - chunk_pointer[owner])
    last = torch.minimum(first + HEAVY, pointer[heavy + 1][owner])
    return Plan(typical, heavy, chunk_pointer, first, last)


class Pieces(NamedTuple):
    """Segments cut into pieces that one program can reduce."""

    first: Tensor  # [P]
    last: Tensor
    owner: Tensor | None  # [P] the segment of every piece; None: every segment is one piece


def pieces_of(segments: Tensor) -> Pieces:
    found = _pieces.get(segments)
    if found is None:
        found = _pieces[segments] = _cut(segments.long())
    return found


def _cut(segments: Tensor) -> Pieces:
    sizes = segments.diff()
    if not len(sizes) or int(sizes.max()) <= PIECE:
        return Pieces(segments[:-1], segments[1:], None)
    count = ((sizes + PIECE - 1) // PIECE).clamp(min=1)
    owner = torch.repeat_interleave(torch.arange(len(sizes), device=segments.device), count)
    first = segments[:-1][owner] + PIECE * (torch.arange(len(owner), device=segments.device) - (count.cumsum(0) - count)[owner])
    return Pieces(first, torch.minimum(first + PIECE, segments[1:][owner]), owner)


# --- shapes of tiles ---


def _heads_at_once(heads: int, most: int) -> int:
    return min(triton.next_power_of_2(heads), most)


# Measured on an H200: numbers in a tile, positions, warps, by the heads at once.
SHAPES = {1: (512, 4, 4), 2: (1024, 4, 4), 4: (1024, 4, 4), 8: (1024, 4, 4), 16: (1024, 4, 2), 32: (1024, 4, 4), 64: (2048, 2, 8)}


def _tile(heads: int, typical: int) -> tuple[int, int, int, int]:
    """Rows, positions, heads and warps of a tile."""
    at_once = _heads_at_once(heads, 64)
    size, positions, warps = SHAPES[at_once]
    positions = min(positions, typical)
    return size // (at_once * positions), positions, at_once, warps


def _long(rows: int, heads: int) -> bool:
    """Whether places in a table need 64 bits; a tile may reach beyond the last row."""
    return (rows + 4096) * heads >= 2**31


# --- one pass ---


def _rows(rows: Rows, weight: Tensor, x: Tensor, bias: Tensor | None, wide: bool, absolute: bool = False, ones: bool = False,
          minus: bool = False) -> Tensor:  # fmt: skip
    nodes, heads = len(rows.pointer) - 1, weight.shape[1]
    out = torch.empty(nodes, heads, dtype=torch.float64 if wide else torch.float32, device=weight.device)
    if not out.numel():
        return out
    plan, order = plan_of(rows), rows.column if rows.order is None else rows.order
    r, d, b, warps = _tile(heads, plan.typical)
    weight, x = weight.contiguous(), x.contiguous()
    offset = x if bias is None else bias.contiguous()
    heavy = HEAVY if plan.heavy is not None else 1 << 30
    flags = (rows.order is not None, absolute, ones, wide, _long(max(len(rows.column), nodes), heads))
    grid = (triton.cdiv(nodes, r), triton.cdiv(heads, b))
    args = (rows.pointer, rows.column, order, weight, x, offset, out, nodes, heads, heavy, *flags, bias is not None, minus, r, d, b)
    cuda_rows.rows_kernel[grid](*args, num_warps=warps)
    if plan.heavy is not None:
        assert plan.chunk_first is not None
        partial = torch.empty(len(plan.chunk_first), heads, dtype=out.dtype, device=out.device)
        grid = (len(plan.chunk_first), triton.cdiv(heads, b))
        chunk = (plan.chunk_first, plan.chunk_last, rows.column, order, weight, x, partial, heads, *flags, TILE // b, b)
        cuda_rows.chunk_kernel[grid](*chunk)
        grid = (len(plan.heavy), triton.cdiv(heads, b))
        cuda_rows.gather_chunks_kernel[grid](plan.heavy, plan.chunk_pointer, partial, out, heads, b)
    return out


def propagate(rows: Rows, weight: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Weights may be stored in bfloat16; sums are in the dtype of x."""
    return _rows(rows, weight, x, bias, x.dtype == torch.float64)


def defect(rows: Rows, weight: Tensor, bias: Tensor, x: Tensor, activation: str) -> Tensor:
    if activation == "identity":
        return _rows(rows, weight, x, bias, True, minus=True)
    return ACTIVATIONS[activation].function(_rows(rows, weight, x, bias, True)) - x


def edge_product(row: Tensor, column: Tensor, u: Tensor, x: Tensor) -> Tensor:
    heads = u.shape[1]
    out = torch.empty(len(row), heads, dtype=torch.promote_types(u.dtype, x.dtype), device=u.device)
    if out.numel():
        b = _heads_at_once(heads, 64)
        edges = TILE // b
        grid = (triton.cdiv(len(row), edges), triton.cdiv(heads, b))
        cuda_rows.edge_product_kernel[grid](
            row, column, u.contiguous(), x.contiguous(), out, len(row), heads, _long(len(row), heads), edges, b
        )
    return out


def all_finite(values: Tensor) -> bool:
    """A sum is finite only if all its terms are; a sum that is not may have overflowed."""
    return bool(torch.isfinite(values.sum())) or bool(torch.isfinite(values).all())


def worst(peaks: Tensor, values: Tensor) -> tuple[float, bool]:
    """Both numbers in one look at the device."""
    if not peaks.numel():
        return 0.0, all_finite(values)
    largest, total = torch.stack([peaks.max(), values.sum(dtype=torch.float64)]).tolist()
    return largest, total - total == 0 or all_finite(values)


def _segments(u: Tensor, v: Tensor, segments: Tensor, measure: str) -> Tensor:
    pieces, heads = pieces_of(segments), u.shape[1]
    out = torch.zeros(len(pieces.first), heads, dtype=torch.float64, device=u.device)
    if u.numel() and len(out):
        b = _heads_at_once(heads, 64)
        grid = (len(out), triton.cdiv(heads, b))
        cuda_rows.segment_kernel[grid](pieces.first, pieces.last, u.contiguous(), v.contiguous(), out, heads, measure, TILE // b, b)
    if pieces.owner is None:
        return out
    # a handful of pieces of every segment, in their order
    whole = torch.zeros(len(segments) - 1, heads, dtype=torch.float64, device=u.device)
    if measure == "max":
        return whole.scatter_reduce_(0, pieces.owner.unsqueeze(1).expand_as(out), out, "amax")
    lengths = torch.bincount(pieces.owner, minlength=len(whole))
    return torch.segment_reduce(out, "sum", lengths=lengths, axis=0, unsafe=True) if len(whole) else whole


def segment_reduce(values: Tensor, segments: Tensor, norm: str) -> Tensor:
    return _segments(values, values, segments, norm)


def segment_dot(u: Tensor, v: Tensor, segments: Tensor) -> Tensor:
    return _segments(u, v, segments, "dot")


def row_peaks(rows: Rows, segments: Tensor, weight: Tensor) -> Tensor:
    if pieces_of(segments).owner is not None:
        return segment_reduce(_rows(rows, weight, weight, None, True, absolute=True, ones=True), segments, "max")
    graphs, heads = len(segments) - 1, weight.shape[1]
    out = torch.empty(graphs, heads, dtype=torch.float64, device=weight.device)
    if out.numel():
        r, b, warps = _lanes_of(heads)
        order = rows.column if rows.order is None else rows.order
        grid = (graphs, triton.cdiv(heads, b))
        args = (
            segments,
            rows.pointer,
            weight.contiguous(),
            order,
            out,
            heads,
            rows.order is not None,
            _long(len(rows.column), heads),
            r,
            b,
        )
        cuda_settle.peaks_kernel[grid](*args, num_warps=warps)
    return out


def relax(rows: Rows, weight: Tensor, inverse: Tensor | None, bias: Tensor, x: Tensor, blocks: bool) -> Tensor:
    for _ in range(2):
        moved = propagate(rows, weight, x, bias)
        x = torch.lerp(x, moved if inverse is None else inverse * moved, 0.7)
    return x


def restrict(rows: Rows, weight: Tensor, inverse: Tensor | None, r: Tensor, groups: Rows, omega: float) -> Tensor:
    smooth = (1 - omega) * r + omega * propagate(rows, weight, r if inverse is None else inverse * r)
    ones = r.new_ones(len(groups.column), r.shape[1])
    return propagate(groups, ones, smooth) / groups.pointer.diff().unsqueeze(1).to(r.dtype)


# --- whole solves ---


def _lanes_of(heads: int) -> tuple[int, int, int]:
    """Rows and heads of a tile of a whole solve, and warps: lanes are heads, warps share the rows."""
    b = _heads_at_once(heads, 16)
    return min(1024 // b, 64), b, 4


def arrange(rows: Rows, segments: Tensor) -> None:
    """Triton needs no layout of its own."""


def settle(
    layout: None, rows: Rows, segments: Tensor, weight: Tensor, bias: Tensor, x0: Tensor | None, norm: str,
    keep: Tensor | None, accuracy: Accuracy,
) -> Settled:  # fmt: skip
    contraction, amplification, tol, rtol, unit, wide, limit = accuracy
    (nodes, heads), graphs, device = bias.shape, len(segments) - 1, bias.device
    dtype = torch.float64 if wide else bias.dtype
    value = torch.empty(nodes, heads, dtype=dtype, device=device)
    residual, bound = (torch.empty_like(contraction) for _ in range(2))
    met = torch.empty(graphs, heads, dtype=torch.bool, device=device)
    r, b, warps = _lanes_of(heads)
    blocks = triton.cdiv(heads, b)
    steps = torch.empty(graphs, max(blocks, 1), dtype=torch.long, device=device)
    if graphs and heads:
        half = 0.0 if dtype == torch.float64 else torch.finfo(dtype).eps / 2
        none = contraction  # stands in for what there is not
        table, fixed = (tol.contiguous(), 0.0) if isinstance(tol, Tensor) else (none, tol)
        factor = none if amplification is None else amplification.contiguous()
        order = none if rows.order is None else rows.order
        start = none if x0 is None else x0.contiguous()
        problem = (
            segments,
            none if keep is None else keep,
            rows.pointer,
            rows.column,
            order,
            weight.contiguous(),
            bias.contiguous(),
        )
        aim = (start, contraction.contiguous(), factor, table)
        found = (value, residual, bound, met, steps, heads, fixed, rtol, unit, half, limit)
        flags = (x0 is not None, keep is not None, amplification is not None, isinstance(tol, Tensor), rows.order is not None)
        more = (*flags, norm == "one", _long(max(len(rows.column), nodes), heads))
        scratch = torch.empty(3 * nodes, heads, dtype=torch.float64, device=device)
        cuda_settle.settle_kernel[(graphs, blocks)](*problem, *aim, scratch, nodes, *found, *more, r, b, num_warps=warps)
    return Settled(value, residual, bound, met, steps[:, 0] if blocks == 1 else steps.amax(1))


def picard(
    rows: Rows, segments: Tensor, weight: Tensor, bias: Tensor, x: Tensor, activation: str, norm: str, contraction: Tensor,
    goal: Tensor, limit: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    phi = ACTIVATIONS[activation].function
    rows, weight = _sorted(rows, weight)

    def step(x: Tensor, state: _Lanes) -> Tensor:
        moved = phi(propagate(rows, weight, x, bias))
        length = segment_reduce(moved - x, segments, norm)
        state.close(length, 2 * state.epsilon * segment_reduce(moved, segments, norm))
        return moved

    return _iterate(step, x, segments, contraction, goal, limit)


def deflated(
    rows: Rows, segments: Tensor, weight: Tensor, bias: Tensor, norm: str, contraction: Tensor, goal: Tensor, limit: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The constant shift of cuda_settle.py."""
    rows, weight = _sorted(rows, weight)
    sizes = segments.diff().clamp(min=1).unsqueeze(1)
    sums = _rows(rows, weight, weight, None, bias.dtype == torch.float64, ones=True)
    ones = torch.ones_like(sums)
    coarse = 1 - segment_dot(sums, ones, segments) / sizes
    last = torch.full_like(goal, torch.inf)
    shifting = torch.ones_like(goal, dtype=torch.bool)

    def step(x: Tensor, state: _Lanes) -> Tensor:
        nonlocal last, shifting
        r = _rows(rows, weight, x, bias, x.dtype == torch.float64, minus=True)
        length = segment_reduce(r, segments, norm)
        done = state.close(length, 2 * state.epsilon * segment_reduce(x, segments, norm))
        shifting = shifting & (length <= contraction * last)
        last = length
        # the last step of a lane is a plain one: its residual is known to be at most contraction * length
        shift = torch.where(shifting & ~done, segment_dot(r, ones, segments) / sizes / coarse, 0.0).to(x.dtype)
        return x + r + state.spread(shift) * sums

    return _iterate(step, torch.zeros_like(bias), segments, contraction, goal, limit)


def _sorted(rows: Rows, weight: Tensor) -> tuple[Rows, Tensor]:
    """Weights in the order of the rows, so that every step reads them in one stream."""
    if rows.order is None:
        return rows, weight
    return Rows(rows.pointer, rows.column, None), ordered(rows, weight)


class _Lanes:
    """Which graphs go on; all of it on the device."""

    def __init__(self, contraction: Tensor, goal: Tensor, segments: Tensor, dtype: torch.dtype):
        self.contraction, self.goal, self.epsilon = contraction, goal, torch.finfo(dtype).eps
        graphs = torch.arange(len(goal), device=goal.device)
        self.batch = torch.repeat_interleave(graphs, segments.diff()) if len(goal) > 1 else None
        self.live = self.moving = torch.isfinite(goal).any(1)
        self.steps = torch.zeros(len(goal), dtype=torch.long, device=goal.device)

    def spread(self, values: Tensor) -> Tensor:
        """Per graph [G, ...] -> per node, or as it is, which broadcasts, for a single graph."""
        return values if self.batch is None else values[self.batch]

    def close(self, length: Tensor, floor: Tensor) -> Tensor:
        """After a step of this length: count it, and see which graphs were at their last one."""
        done = (self.contraction * length <= self.goal) | (length <= floor)
        self.steps += self.live
        self.moving, self.live = self.live, self.live & ~done.all(1)
        return done


LOOK = 8  # steps between two looks at the device: launches run ahead, and a step too many does no harm


def _iterate(step, x: Tensor, segments: Tensor, contraction: Tensor, goal: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    lanes = _Lanes(contraction, goal, segments, x.dtype)
    for taken in range(limit):
        if taken % LOOK == 0 and not bool(lanes.live.any()):
            break
        moved = step(x, lanes)
        x = torch.where(lanes.spread(lanes.moving).unsqueeze(1), moved, x)
    return x, lanes.steps
