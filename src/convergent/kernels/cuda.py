"""The kernels of CUDA: the launches of the Triton kernels in cuda_*.py, and plain torch where that is as good.

What a launch needs to know of a structure (how long rows are, where segments are cut) is read from the device once and kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from convergent.kernels import backend, cuda_rows, cuda_settle, cuda_step
from convergent.kernels.activations import ACTIVATIONS
from convergent.kernels.cuda_launch import Kernel
from convergent.kernels.reference import (
    Accuracy,
    Rows,
    Settled,
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
    "edge_sum",
    "sum_edges",
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

STORES_BFLOAT16 = True
HEAVY = 1024  # positions of a row above which it is cut into chunks of so many
PIECE = 4096  # rows of a segment that one program reduces
TILE = 2048  # numbers in a tile
LOOK = 8  # steps between two looks at the device
MEASURE = 4  # plain steps between two measurements of the residual
GROUP = 256  # pieces whose sums are added up by one program


# --- what is known of a structure ---


class Plan(NamedTuple):
    """How the rows of a structure are cut up."""

    typical: int  # positions of a row, a power of two
    heavy: Tensor | None = None  # [K] rows that are cut into chunks; None: there is none
    chunk_pointer: Tensor | None = None  # [K + 1]
    chunk_first: Tensor | None = None  # [chunks]
    chunk_last: Tensor | None = None


class Pieces(NamedTuple):
    """Segments cut into pieces that one program can take."""

    first: Tensor  # [P]
    last: Tensor
    owner: Tensor  # [P] the segment of every piece
    pointer: Tensor  # [G + 1] the pieces of every segment
    most: int  # pieces of a segment


_known = WeakTensorKeyDictionary()


def _remembered(tensor: Tensor, name: Any, make: Callable[[], Any]) -> Any:
    """What was once found out about a tensor of a structure, which never changes."""
    facts = _known.get(tensor)
    if facts is None:
        facts = _known[tensor] = {}
    if name not in facts:
        facts[name] = make()
    return facts[name]


def plan_of(rows: Rows) -> Plan:
    return _remembered(rows.pointer, "plan", lambda: _plan(rows))


def _plan(rows: Rows) -> Plan:
    pointer = rows.pointer.long()
    lengths = pointer.diff()
    if not len(lengths) or not rows.column.shape[0]:
        return Plan(1)
    typical = _power(max(round(rows.column.shape[0] / len(lengths)), 1))
    if int(lengths.max()) <= HEAVY:
        return Plan(typical)
    heavy = (lengths > HEAVY).nonzero().squeeze(1)
    cut = _cut(pointer[heavy], pointer[heavy + 1], HEAVY)
    return Plan(typical, heavy, cut.pointer, cut.first, cut.last)


def pieces_of(segments: Tensor, size: int) -> Pieces:
    """Every segment in pieces of that many rows; one that is empty has none."""
    return _remembered(segments, size, lambda: _cut(segments[:-1], segments[1:], size))


def _cut(begin: Tensor, end: Tensor, size: int) -> Pieces:
    count = (end.long() - begin.long() + size - 1) // size
    pointer = torch.nn.functional.pad(count.cumsum(0), (1, 0))
    owner = torch.repeat_interleave(torch.arange(len(count), device=begin.device), count)
    first = begin[owner] + size * (torch.arange(len(owner), device=begin.device) - pointer[owner])
    first, last = (index.to(begin.dtype) for index in (first, torch.minimum(first + size, end[owner])))
    return Pieces(first, last, owner.to(begin.dtype), pointer, int(count.max()) if len(count) else 0)


# --- shapes of tiles ---


def _parts(whole: int, part: int) -> int:
    return -(-whole // part)  # Triton's own cdiv is slow to call


def _power(number: int) -> int:
    """The next power of two."""
    return 1 << (number - 1).bit_length()


def _heads_at_once(heads: int, most: int) -> int:
    return min(_power(heads), most)


class Tile(NamedTuple):
    """What one program takes at a time."""

    rows: int
    positions: int
    unroll: int
    heads: int
    warps: int


# Measured on an H200: numbers in a tile, positions, how many times as many are asked for at a time, and warps, by heads at once.
SHAPES = {
    1: (256, 4, 3, 2),
    2: (1024, 4, 3, 4),
    4: (1024, 2, 3, 4),
    8: (1024, 2, 2, 4),
    16: (1024, 2, 1, 4),
    32: (1024, 2, 1, 4),
    64: (2048, 2, 1, 8),
}


def _tile(heads: int, typical: int, stored: torch.dtype) -> Tile:
    at_once = _heads_at_once(heads, 64)
    size, positions, unroll, warps = SHAPES[at_once]
    if stored == torch.bfloat16 and at_once >= 8:
        size *= 2  # a thread takes eight numbers then, and the positions of a row should stay within a warp
    positions = min(positions, typical)
    return Tile(size // (at_once * positions), positions, min(unroll, _parts(typical, positions)), at_once, warps)


def _long(rows: int, heads: int) -> bool:
    """Whether places in a table need 64 bits; a tile may reach beyond the last row."""
    return (rows + 4096) * heads >= 2**31


# --- one pass ---


def _rows(rows: Rows, weight: Tensor, x: Tensor, bias: Tensor | None, wide: bool, absolute: bool = False, ones: bool = False,
          minus: bool = False) -> Tensor:  # fmt: skip
    nodes, heads = rows.pointer.shape[0] - 1, weight.shape[1]
    out = torch.empty(nodes, heads, dtype=torch.float64 if wide else torch.float32, device=weight.device)
    if not out.numel():
        return out
    plan, order = plan_of(rows), rows.column if rows.order is None else rows.order
    tile = _tile(heads, plan.typical, weight.dtype)
    weight, x = weight.contiguous(), x.contiguous()
    offset = x if bias is None else bias.contiguous()
    flags = (rows.order is not None, absolute, ones, wide, _long(max(rows.column.shape[0], nodes), heads))
    if plan.heavy is not None:
        _long_rows(plan, rows.column, order, weight, x, out, flags)
    tensors = (rows.pointer, rows.column, order, weight, x, offset, out)
    constants = (*flags, plan.heavy is not None, bias is not None, minus, *tile[:4])
    cuda_rows.rows((_parts(nodes, tile.rows), _parts(heads, tile.heads)), tensors, (nodes, heads, HEAVY), constants, tile.warps)
    return out


def _long_rows(
    plan: Plan, column: Tensor, order: Tensor, weight: Tensor, x: Tensor, out: Tensor, flags: tuple[bool, ...],
    live: tuple[Tensor, Tensor] | None = None,
) -> None:  # fmt: skip
    """The product of long rows, chunk by chunk, written to ``out``; ``live`` are the graphs of those rows, and which go on."""
    heavy, pointer, first, last = plan[1:]
    assert heavy is not None
    assert first is not None
    heads = weight.shape[1]
    b = _heads_at_once(heads, 64)
    blocks = _parts(heads, b)
    partial = torch.empty(first.shape[0], heads, dtype=out.dtype, device=out.device)
    cuda_rows.chunks((first.shape[0], blocks), (first, last, column, order, weight, x, partial), (heads,), (*flags, TILE // b, b))
    owner, going = live or (torch.zeros_like(heavy), torch.ones(1, dtype=torch.int8, device=out.device))
    cuda_rows.gather_chunks((heavy.shape[0], blocks), (heavy, pointer, owner, going, partial, out), (heads,), (b,))


def propagate(rows: Rows, weight: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Weights may be stored in bfloat16; sums are in the dtype of x."""
    return _rows(rows, weight, x, bias, x.dtype == torch.float64)


def defect(rows: Rows, weight: Tensor, bias: Tensor, x: Tensor, activation: str) -> Tensor:
    if activation == "identity":
        return _rows(rows, weight, x, bias, True, minus=True)
    return ACTIVATIONS[activation].function(_rows(rows, weight, x, bias, True)) - x


def sum_edges(rows: Rows, values: Tensor) -> Tensor:
    return _rows(rows, values, values, None, values.dtype == torch.float64, ones=True)


def edge_product(row: Tensor, column: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return _at_edges(row, column, u, x, None)


def edge_sum(row: Tensor, column: Tensor, values: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return _at_edges(row, column, u, x, values)


def _at_edges(row: Tensor, column: Tensor, u: Tensor, x: Tensor, values: Tensor | None) -> Tensor:
    """A product, or a sum where there are values to add."""
    edges, heads, dtype = row.shape[0], u.shape[1], torch.promote_types(u.dtype, x.dtype)
    if values is not None:
        dtype = torch.promote_types(dtype, values.dtype)
    out = torch.empty(edges, heads, dtype=dtype, device=row.device)
    if out.numel():
        b = _heads_at_once(heads, 64)
        at_once = TILE // b
        grid = (_parts(edges, at_once), _parts(heads, b))
        tensors = (row, column, *(part.contiguous() for part in (u, x, u if values is None else values)), out)
        cuda_rows.edges(grid, tensors, (edges, heads), (values is not None, _long(edges, heads), at_once, b))
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
    pieces, heads, graphs = pieces_of(segments, PIECE), u.shape[1], segments.shape[0] - 1
    single = pieces.most <= 1  # then segments are their own pieces, the empty ones too
    first, last = (segments[:-1], segments[1:]) if single else pieces[:2]
    out = torch.zeros(first.shape[0], heads, dtype=torch.float64, device=u.device)
    if u.numel() and out.shape[0]:
        b = _heads_at_once(heads, 64)
        grid = (out.shape[0], _parts(heads, b))
        cuda_rows.segments(grid, (first, last, u.contiguous(), v.contiguous(), out), (heads,), (measure, TILE // b, b))
    if single:
        return out
    # a handful of pieces of every segment, in their order
    if measure == "max":
        whole = torch.zeros(graphs, heads, dtype=torch.float64, device=u.device)
        return whole.scatter_reduce_(0, pieces.owner.long().unsqueeze(1).expand_as(out), out, "amax")
    return torch.segment_reduce(out, "sum", lengths=pieces.pointer.diff(), axis=0, unsafe=True)


def segment_reduce(values: Tensor, segments: Tensor, norm: str) -> Tensor:
    return _segments(values, values, segments, norm)


def segment_dot(u: Tensor, v: Tensor, segments: Tensor) -> Tensor:
    return _segments(u, v, segments, "dot")


def row_peaks(rows: Rows, segments: Tensor, weight: Tensor, wider: float = 1.0) -> Tensor:
    if pieces_of(segments, PIECE).most > 1:
        sums = _rows(rows, weight, weight, None, True, absolute=True, ones=True)
        return segment_reduce(sums, segments, "max").mul_(wider)
    graphs, heads = segments.shape[0] - 1, weight.shape[1]
    out = torch.empty(graphs, heads, dtype=torch.float64, device=weight.device)
    if out.numel():
        r, b, warps = _lanes_of(heads)
        order = rows.column if rows.order is None else rows.order
        constants = (rows.order is not None, _long(rows.column.shape[0], heads), r, b)
        tensors = (segments, rows.pointer, order, weight.contiguous(), out)
        cuda_settle.peaks((graphs, _parts(heads, b)), tensors, (heads, float(wider)), constants, warps)
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


def aggregate(rows: Rows) -> Tensor:
    """One node after the other, which is nothing for a GPU: done by the host."""
    there = Rows(rows.pointer.cpu(), rows.column.cpu(), None)
    return backend(there.pointer).aggregate(there).to(rows.pointer.device)


# --- whole solves of small graphs ---


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
    contraction, amplification, tol, rtol, unit, wide, limit, gap, near = accuracy
    (nodes, heads), graphs, device = bias.shape, segments.shape[0] - 1, bias.device
    dtype = torch.float64 if wide else bias.dtype
    value = torch.empty(nodes, heads, dtype=dtype, device=device)
    residual, bound = (torch.empty_like(contraction) for _ in range(2))
    status = torch.empty(graphs, heads, dtype=torch.int8, device=device)
    r, b, warps = _lanes_of(heads)
    blocks = _parts(heads, b)
    steps = torch.zeros(graphs, dtype=torch.long, device=device)
    if graphs and heads:
        none = contraction  # stands in for what there is not
        optional = [none if part is None else part.contiguous() for part in (x0, amplification)]
        table, fixed = (tol.contiguous(), 0.0) if isinstance(tol, Tensor) else (none, float(tol))
        approached = bias.dtype == torch.float32 and x0 is None
        scratch = torch.empty(cuda_settle.BUFFERS.value * nodes, heads, dtype=torch.float64, device=device)
        quick = torch.empty(cuda_settle.QUICK_BUFFERS.value * nodes * approached, heads, dtype=torch.float32, device=device)
        tensors = (
            segments, none if keep is None else keep, rows.pointer, rows.column, none if rows.order is None else rows.order,
            weight.contiguous(), bias.contiguous(), optional[0], contraction.contiguous(), optional[1], table, scratch, quick,
            value, residual, bound, status, steps,
        )  # fmt: skip
        half = 0.0 if dtype == torch.float64 else torch.finfo(dtype).eps / 2
        numbers = (nodes, heads, limit, fixed, float(rtol), float(unit), half, float(gap), float(near))
        flags = (x0 is not None, keep is not None, amplification is not None, isinstance(tol, Tensor), rows.order is not None)
        constants = (*flags, norm == "one", _long(max(rows.column.shape[0], 5 * nodes), heads), approached, r, b)
        cuda_settle.settle((graphs, blocks), tensors, numbers, constants, warps)
    return Settled(value, residual, bound, status, steps)


# --- steps on graphs of any size ---


def picard(
    rows: Rows, segments: Tensor, weight: Tensor, bias: Tensor, x: Tensor, activation: str, norm: str, contraction: Tensor,
    goal: Tensor, limit: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return _stepped(rows, segments, weight, bias, x, activation, norm, contraction, goal, limit, None)


class Shift(NamedTuple):
    """What the shifted steps of cuda_step.py know of an operator."""

    sums: Tensor  # W 1, [N, H]
    image: Tensor  # W W 1
    coarse: Tensor  # [G, H] nodes * (1 - mean of the sums)
    first: Tensor  # [G, H] the shift of the first step


def deflated(
    rows: Rows, segments: Tensor, weight: Tensor, bias: Tensor, norm: str, contraction: Tensor, goal: Tensor, limit: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    rows, weight = _sorted(rows, weight)
    sums = _rows(rows, weight, weight, None, bias.dtype == torch.float64, ones=True)
    ones = torch.ones_like(sums)
    coarse = segment_dot(ones, ones, segments) - segment_dot(sums, ones, segments)
    first = torch.where(coarse > 0, segment_dot(bias, ones, segments) / coarse, 0.0)
    shift = Shift(sums, propagate(rows, weight, sums), coarse, first)
    return _stepped(rows, segments, weight, bias, bias, "identity", norm, contraction, goal, limit, shift)


def _sorted(rows: Rows, weight: Tensor) -> tuple[Rows, Tensor]:
    """Weights in the order of the rows, so that every step reads them in one stream."""
    if rows.order is None:
        return rows, weight.contiguous()
    return Rows(rows.pointer, rows.column, None), ordered(rows, weight)


def _stepped(
    rows: Rows, segments: Tensor, weight: Tensor, bias: Tensor, y: Tensor, activation: str, norm: str, contraction: Tensor,
    goal: Tensor, limit: int, shift: Shift | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Steps from ``y`` until all graphs are at their goal; a graph that is done stays where it is."""
    if not y.numel():
        return y, torch.zeros(goal.shape[0], dtype=torch.long, device=y.device)
    step = _Step(*_sorted(rows, weight), segments, bias.contiguous(), activation, norm, contraction, goal, shift)
    start, turns = y.contiguous(), [torch.empty_like(y, memory_format=torch.contiguous_format) for _ in range(2)]
    here, look = start, _Look(step.live)
    for taken in range(limit):
        if taken % LOOK == 0 and not look.any_left():
            break
        step(here, turns[taken % 2], last=taken + 1 == limit)
        here = turns[taken % 2]
    if goal.shape[0] == 1:
        count = int(step.steps)
        return (turns[(count - 1) % 2] if count else start), step.steps
    counts = torch.repeat_interleave(step.steps, segments.diff(), output_size=y.shape[0]).unsqueeze(1)
    return torch.where(counts == 0, start, torch.where(counts % 2 == 1, turns[0], turns[1])), step.steps


class _Step:
    """One step of all graphs that go on and, now and then, the decision which of them still do; nothing of it comes to the host.

    The shift of a step depends on the residual before it, which is then measured every time.
    """

    def __init__(
        self, rows: Rows, weight: Tensor, segments: Tensor, bias: Tensor, activation: str, norm: str, contraction: Tensor,
        goal: Tensor, shift: Shift | None,
    ):  # fmt: skip
        self.rows, self.weight, self.bias, self.shift = rows, weight, bias, shift
        (self.nodes, self.heads), graphs, device = bias.shape, goal.shape[0], bias.device
        self.live = torch.isfinite(goal).any(1).to(torch.int8)
        self.steps = torch.zeros(graphs, dtype=torch.long, device=device)
        self.since, self.often = 0, MEASURE if shift is None else 1
        self.launches: dict[Any, Any] = {}  # that were made before
        self.plan = plan_of(rows)
        self.tile = _tile(self.heads, self.plan.typical, weight.dtype)
        self.pieces = pieces_of(segments, self.tile.rows)
        self.partial = torch.empty(self.pieces.first.shape[0], 3, self.heads, dtype=bias.dtype, device=device)
        self.groups = _parts(self.pieces.most, GROUP)
        self.grouped, pointer = self.partial, self.pieces.pointer
        if self.groups > 1:
            self.grouped = torch.empty(graphs * self.groups, 3, self.heads, dtype=torch.float64, device=device)
            pointer = torch.arange(graphs + 1, device=device) * self.groups
        goals = (contraction.contiguous(), goal.contiguous())
        self.sums, self.image = (bias, bias) if shift is None else (shift.sums, shift.image)
        self.by = torch.zeros_like(goals[0]) if shift is None else shift.first.contiguous()
        memory = goals if shift is None else (torch.full_like(goals[0], torch.inf), shift.coarse)
        self.decided = (pointer, self.grouped, *goals, *memory, self.by, self.live, self.steps)
        self.epsilon, self.one = torch.finfo(bias.dtype).eps, norm == "one"
        wide, long = bias.dtype == torch.float64, _long(max(rows.column.shape[0], self.nodes), self.heads)
        self.flags = (False, False, False, wide, long)
        hubs = self.plan.heavy is not None
        self.constants = (activation, shift is not None, self.one, hubs, wide, long, *self.tile[:4], graphs == 1)
        if self.plan.heavy is not None:
            self.owner = torch.bucketize(self.plan.heavy, segments[1:].long(), right=True)

    def __call__(self, y: Tensor, out: Tensor, last: bool = False) -> None:
        rows, pieces, tile = self.rows, self.pieces, self.tile
        if self.plan.heavy is not None:
            _long_rows(self.plan, rows.column, rows.column, self.weight, y, out, self.flags, (self.owner, self.live))
        self.since += 1
        measured = last or self.since == self.often
        if not self._again(key := (y.data_ptr(), out.data_ptr(), measured)):
            tensors = (
                pieces.first, pieces.last, pieces.owner, self.live, rows.pointer, rows.column, self.weight, self.bias, y, self.sums,
                self.image, self.by, out, self.partial,
            )  # fmt: skip
            grid, numbers = (pieces.first.shape[0], _parts(self.heads, tile.heads)), (self.nodes, self.heads, HEAVY)
            self._launch(key, cuda_step.step, grid, tensors, numbers, (*self.constants, measured), tile.warps)
        if measured:
            self.decide()

    def decide(self) -> None:
        """What came of the steps since the last decision."""
        graphs, b, shifted = self.live.shape[0], _heads_at_once(self.heads, 16), self.shift is not None
        if self.groups > 1 and not self._again("gather"):
            found, grid = (self.pieces.pointer, self.partial, self.grouped), (graphs * self.groups, _parts(self.heads, b))
            self._launch("gather", cuda_step.gather, grid, found, (self.heads, self.groups), (self.one, shifted, GROUP, b), 8)
        if not self._again(self.since):
            numbers = (self.heads, self.since, self.epsilon)
            self._launch(self.since, cuda_step.decide, (graphs, 1), self.decided, numbers, (shifted, self.one, b), 8)
        self.since = 0

    def _again(self, key: Any) -> bool:
        """The launch of this key once more, if it was made before: then nothing has to be looked up."""
        launch = self.launches.get(key)
        if launch is not None:
            launch()
        return launch is not None

    def _launch(self, key: Any, kernel: Kernel, *arguments: Any) -> None:
        kernel(*arguments)
        self.launches[key] = kernel.prepared(*arguments)


class _Look:
    """Whether any graph goes on, as it was at the look before: the device never waits for the host."""

    def __init__(self, live: Tensor):
        self.live = live
        self.flags: list[Tensor] = []
        self.seen: torch.cuda.Event | None = None

    def any_left(self) -> bool:
        if not self.live.is_cuda:  # in Triton's interpreter
            return bool(self.live.any())
        if not self.flags:
            self.flags = list(torch.ones(2, dtype=torch.int8, pin_memory=True))
        before, self.seen = self.seen, torch.cuda.Event()
        if before is not None:
            before.synchronize()
        known = bool(self.flags[0])
        self.flags.reverse()
        self.flags[0].copy_(self.live.max(), non_blocking=True)
        self.seen.record()
        return known
