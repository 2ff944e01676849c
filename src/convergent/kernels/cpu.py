"""The kernels in numba: the functions of ``reference``, for float32 and float64 on the CPU.

This file is the door: it brings tensors into the form the native code reads, chooses the lanes, and decides between one
thread and a team and between graphs that fit in cache (``cpu_blocks``) and graphs that do not (``cpu_sweeps``).
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import cache
from threading import Lock
from typing import NamedTuple

import numba
import numpy as np
import torch
from numba import types
from torch import Tensor

from convergent.kernels import cpu_blocks, cpu_lu, cpu_rows, cpu_settle, cpu_sweeps
from convergent.kernels.cpu_aggregate import aggregate, blend, combine, reach, relax, restrict
from convergent.kernels.lanes import Lanes
from convergent.kernels.reference import UNMET, Accuracy, Rows, Settled

__all__ = [
    "Rows",
    "aggregate",
    "all_finite",
    "arrange",
    "blend",
    "combine",
    "deflated",
    "defect",
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

STORES_BFLOAT16 = False
SERIAL = 100_000  # values (edges times heads) below which waking other threads costs more than they save
CACHE = 1 << 20  # bytes of a graph's block of heads up to which it is iterated in cache
EPSILON = {dtype: torch.finfo(dtype).eps for dtype in (torch.float32, torch.float64)}
FAR = 8 << 20  # bytes of x from which gathers come from memory and want a longer prefetch

if "NUMBA_THREADING_LAYER_PRIORITY" not in os.environ:
    numba.config.THREADING_LAYER_PRIORITY = ["omp", "tbb", "workqueue"]  # the fastest first; read when the first team starts


# --- how wide, and how many threads ---


@cache
def _streaming(heads: int, dtype: torch.dtype) -> Lanes:
    """Lanes for arrays that are read once, where they lie."""
    number = _number(dtype)
    if heads in (1, 4, 8) or heads % 16 == 0:
        return _lanes(min(heads, 16) or 16, number, False)
    return _lanes(4 if heads < 4 else 16, number, True)


@cache
def _packing(heads: int, dtype: torch.dtype) -> Lanes:
    """Lanes for graphs that are packed into a scratch of their own."""
    number = _number(dtype)
    width = 4 if heads <= 4 else 16 if heads <= 16 else 32
    return _lanes(width, number, heads % width != 0)


def _number(dtype: torch.dtype) -> types.Float:
    return types.float32 if dtype == torch.float32 else types.float64


@cache
def _lanes(width: int, dtype: types.Float, masked: bool) -> Lanes:
    return Lanes(width, dtype, masked)


def _threads(values: int) -> int:
    """As many as torch uses: one in a data loader's worker, which must not touch the pool of the process it was forked from."""
    threads = 1 if values < SERIAL else torch.get_num_threads()
    return threads if threads == 1 else min(threads, numba.get_num_threads())


@cache
def _gate():
    """Numba's own thread pool serves one caller at a time; OpenMP and TBB serve any number."""
    numba.get_num_threads()  # starts the pool, which is what chooses the layer
    return Lock() if numba.threading_layer() == "workqueue" else nullcontext()


def _run(name: str, module, lanes: Lanes | tuple[Lanes, ...], values: int, args: tuple) -> None:
    """A kernel on as many threads as pay. There are no lanes among ``args``: numba would take long to find their types."""
    threads = _threads(values)
    kinds = lanes if isinstance(lanes, tuple) else (lanes,)
    counter = np.zeros(1, np.int64)
    if threads == 1:
        getattr(module, f"{name}_worker")(*kinds, counter, *args)
        return
    with _gate():
        getattr(module, f"{name}_team")(threads, *kinds, counter, args)


# --- tensors as arrays ---


def _array(tensor: Tensor) -> np.ndarray:
    if tensor.requires_grad or not tensor.is_contiguous():
        tensor = tensor.detach().contiguous()
    return tensor.numpy()


def _as(tensor: Tensor, dtype: torch.dtype) -> np.ndarray:
    return _array(tensor if tensor.dtype == dtype else tensor.to(dtype))


def _structure(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Pointer, column, order and whether there is one: the column stands in where there is none."""
    column = _array(rows.column)
    order = column if rows.order is None else _array(rows.order)
    return _array(rows.pointer), column, order, rows.order is not None


def _ahead(x: Tensor) -> int:
    return 64 if x.numel() * x.element_size() > FAR else 48


def _not_above(tensor: Tensor, dtype: torch.dtype) -> np.ndarray:
    """Single precision is read as it is by a kernel in double; the other way round it is converted once."""
    return _array(tensor) if tensor.dtype == torch.float32 else _as(tensor, dtype)


# --- one pass ---


def group(keys: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Stable grouping of positions by key, in linear time."""
    pointer, order = cpu_rows.group_keys(_array(keys), size)
    if pointer[-1] != len(keys):
        raise ValueError(f"keys must lie in 0 .. {size - 1}")
    return torch.from_numpy(pointer), torch.from_numpy(order)


def ordered(rows: Rows, weight: Tensor) -> Tensor:
    if rows.order is None:
        return weight
    out = torch.empty(weight.shape, dtype=weight.dtype)
    if out.numel():
        args = (_array(rows.order), _array(weight), out.numpy())
        _run("ordered", cpu_rows, _streaming(weight.shape[1], weight.dtype), out.numel(), args)
    return out


def propagate(rows: Rows, weight: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
    out = torch.empty(len(rows.pointer) - 1, x.shape[1], dtype=x.dtype)
    if out.numel():
        source = _array(x)
        offset = source if bias is None else _not_above(bias, x.dtype)
        args = (*_structure(rows), _not_above(weight, x.dtype), source, offset, bias is not None, _ahead(x), out.numpy())
        _run("propagate", cpu_rows, _streaming(x.shape[1], x.dtype), weight.numel(), args)
    return out


def sum_edges(rows: Rows, values: Tensor) -> Tensor:
    """A product with ones, which stay in the cache."""
    return propagate(rows, values, values.new_ones(len(rows.pointer) - 1, values.shape[1]))


def edge_product(row: Tensor, column: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return _at_edges(row, column, u, x, None)


def edge_sum(row: Tensor, column: Tensor, values: Tensor, u: Tensor, x: Tensor) -> Tensor:
    return _at_edges(row, column, u, x, values)


def _at_edges(row: Tensor, column: Tensor, u: Tensor, x: Tensor, values: Tensor | None) -> Tensor:
    """A product, or a sum where there are values to add."""
    dtype = torch.promote_types(u.dtype, x.dtype)
    if values is not None:
        dtype = torch.promote_types(dtype, values.dtype)
    out = torch.empty(len(row), u.shape[1], dtype=dtype)
    if out.numel():
        ends = (_as(u, dtype), _as(x, dtype))
        added = ends[0] if values is None else _as(values, dtype)
        args = (_array(row), _array(column), *ends, added, values is not None, _ahead(x), out.numpy())
        _run("edges", cpu_rows, _streaming(u.shape[1], dtype), out.numel(), args)
    return out


def all_finite(values: Tensor) -> bool:
    kind, exponent = (np.int32, 0x7F800000) if values.dtype == torch.float32 else (np.int64, 0x7FF0000000000000)
    return cpu_rows.all_finite(_array(values).reshape(-1).view(kind), kind(exponent))


def worst(peaks: Tensor, values: Tensor) -> tuple[float, bool]:
    return float(_array(peaks).max(initial=0.0)), all_finite(values)


def _reduce(u: np.ndarray, v: np.ndarray, segments: Tensor, kind: int) -> Tensor:
    begin, first_piece = cpu_rows.pieces_of(_array(segments))
    partial = np.zeros((len(begin) - 1, u.shape[1]))
    if u.size:
        # one value is far less work here than an edge elsewhere
        _run("reduce", cpu_rows, _streaming(u.shape[1], torch.float64), u.size // 8, (begin, u, v, kind, partial))
    return torch.from_numpy(cpu_rows.combine(partial, first_piece, kind))


def segment_reduce(values: Tensor, segments: Tensor, norm: str) -> Tensor:
    array = _array(values)
    return _reduce(array, array, segments, 1 if norm == "one" else 0)


def segment_dot(u: Tensor, v: Tensor, segments: Tensor) -> Tensor:
    return _reduce(_array(u), _array(v), segments, 2)


def row_peaks(rows: Rows, segments: Tensor, weight: Tensor, wider: float = 1.0) -> Tensor:
    begin, first_piece = cpu_rows.pieces_of(_array(segments))
    partial = np.zeros((len(begin) - 1, weight.shape[1]))
    if weight.numel():
        pointer, _, order, permuted = _structure(rows)
        args = (begin, pointer, order, permuted, _array(weight), partial)
        _run("row_peaks", cpu_rows, _streaming(weight.shape[1], torch.float64), weight.numel(), args)
    return torch.from_numpy(cpu_rows.combine(partial, first_piece, 0)).mul_(wider)


def defect(rows: Rows, weight: Tensor, bias: Tensor, x: Tensor, activation: str) -> Tensor:
    out = torch.empty(x.shape, dtype=torch.float64)
    if out.numel():
        args = (*_structure(rows), _array(weight), _array(x), _array(bias), cpu_rows.CODES[activation], _ahead(x), out.numpy())
        _run("defect", cpu_rows, _streaming(x.shape[1], torch.float64), weight.numel(), args)
    return out


# --- whole solves ---


def picard(
    rows: Rows,
    segments: Tensor,
    weight: Tensor,
    bias: Tensor,
    x: Tensor,
    activation: str,
    norm: str,
    contraction: Tensor,
    goal: Tensor,
    limit: int,
) -> tuple[Tensor, Tensor]:
    """A block of heads ends when all its heads are at their goals; the steps of a graph are those of its slowest block."""
    solve = _Solve(rows, segments, weight, bias, norm, contraction, goal, limit)
    out = x.detach().clone(memory_format=torch.contiguous_format)
    code = cpu_rows.CODES[activation]
    small, large = solve.graphs()
    if len(small):
        solve.in_cache("picard", small, (_array(x), code), out)
    if len(large):
        sorted_weight, spare = _array(ordered(rows, weight)), np.empty_like(solve.bias)
        for graph in large:
            solve.in_memory(cpu_sweeps.picard_graph, graph, sorted_weight, out, (spare, spare, False, code))
    return out, solve.steps


def deflated(
    rows: Rows,
    segments: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm: str,
    contraction: Tensor,
    goal: Tensor,
    limit: int,
) -> tuple[Tensor, Tensor]:
    """For graphs larger than the cache; those that fit are solved by ``settle``."""
    solve = _Solve(rows, segments, weight, bias, norm, contraction, goal, limit)
    out = torch.zeros(bias.shape, dtype=bias.dtype)
    sorted_weight, spare, left = _array(ordered(rows, weight)), np.empty_like(solve.bias), np.empty_like(solve.bias)
    for graph in np.flatnonzero(np.isfinite(solve.goal).any(1)).tolist():
        solve.in_memory(cpu_sweeps.deflated_graph, graph, sorted_weight, out, (spare, left, True, 0))
    return out, solve.steps


class Arrangement(NamedTuple):
    """A layout, and how much room its graphs need."""

    layout: cpu_settle.Layout
    every: np.ndarray  # [G]
    nodes: int  # of the largest graph
    edges: int


def arrange(rows: Rows, segments: Tensor) -> Arrangement:
    """What ``settle`` needs to know of a structure, for all solves on it."""
    nodes = _array(segments)
    layout = cpu_settle.Layout(nodes, *cpu_settle.arrange(nodes, *_structure(rows)))
    most = (int(np.diff(part).max(initial=0)) for part in (nodes, layout.borders))
    return Arrangement(layout, np.arange(len(nodes) - 1), *most)


def settle(
    arrangement: Arrangement, rows: Rows, segments: Tensor, weight: Tensor, bias: Tensor, x0: Tensor | None, norm: str,
    keep: Tensor | None, accuracy: Accuracy,
) -> Settled:  # fmt: skip
    layout, every, most_nodes, most_edges = arrangement
    graphs, heads = len(every), bias.shape[1]
    dtype = torch.float64 if accuracy.wide else bias.dtype
    table = np.zeros((3, graphs, heads))  # residual, bound, met
    if keep is not None:
        table[1] = np.inf
    value = (torch.empty if keep is None else torch.zeros)(bias.shape, dtype=dtype)
    steps = np.zeros(graphs, np.int64)
    chosen = every
    if keep is not None:
        chosen = np.flatnonzero(_array(keep))
        most_nodes, most_edges = (int(np.diff(part)[chosen].max(initial=0)) for part in (layout.segments, layout.borders))
    if len(chosen) and heads:
        contraction = _as(accuracy.contraction, torch.float64)
        wider = accuracy.amplification
        factor = (1 + accuracy.gap) / (1 - contraction) if wider is None else _as(wider, torch.float64)
        tol = _as(accuracy.tol, torch.float64) if isinstance(accuracy.tol, Tensor) else np.full((graphs, heads), accuracy.tol)
        operator = (_as(weight, bias.dtype), _array(bias), _array(bias if x0 is None else x0), x0 is not None)
        half = 0.0 if dtype == torch.float64 else EPSILON[dtype] / 2
        numbers = (accuracy.rtol, accuracy.unit, half, EPSILON[bias.dtype], accuracy.gap, norm == "one", accuracy.limit)
        problem = (chosen, most_nodes, most_edges, *layout, *operator, contraction, factor, tol, *numbers)
        _run("settle", cpu_settle, _packing(heads, bias.dtype), weight.numel(), (*problem, value.numpy(), *table, steps))
    status = np.where(table[2] > 0, 0, UNMET).astype(np.int8)
    return Settled(value, *(torch.from_numpy(part) for part in (table[0], table[1], status, steps)))


class _Solve:
    """What Picard and its deflated form share: their arguments as arrays, and the two ways to run them."""

    def __init__(self, rows, segments, weight, bias, norm, contraction, goal, limit) -> None:
        self.structure = _structure(rows)
        self.segments = _array(segments)
        self.dtype = bias.dtype
        self.weight, self.bias = _as(weight, bias.dtype), _array(bias)
        self.one = norm == "one"
        self.contraction, self.goal = _as(contraction, torch.float64), _as(goal, torch.float64)
        self.epsilon = EPSILON[bias.dtype]
        self.limit = limit
        self.lanes = _packing(bias.shape[1], bias.dtype)
        self.steps = torch.zeros(len(goal), dtype=torch.long)

    def graphs(self) -> tuple[np.ndarray, np.ndarray]:
        """Graphs with something to reach: those for the cache and those for the memory."""
        room = CACHE // (self.lanes.width * self.bias.itemsize)
        return cpu_blocks.choose(self.segments, self.structure[0], self.goal, room)

    def in_cache(self, name: str, graphs: np.ndarray, extra: tuple, out: Tensor) -> None:
        tail = (self.one, self.contraction, self.goal, self.epsilon, self.limit, out.numpy(), self.steps.numpy())
        args = (graphs, self.segments, *self.structure, self.weight, self.bias, *extra, *tail)
        _run(name, cpu_blocks, self.lanes, self.weight.size, args)

    def in_memory(self, solve, graph: int, weight: np.ndarray, out: Tensor, extra: tuple) -> None:
        pointer, column, _, _ = self.structure
        first, last = self.segments[graph], self.segments[graph + 1]
        lanes = _streaming(self.bias.shape[1], self.dtype)
        threads, counter = _threads(int(pointer[last] - pointer[first]) * weight.shape[1]), np.zeros(1, np.int64)
        partial = np.empty((cpu_rows.CHUNKS, 2, weight.shape[1]))
        tail = (self.one, self.contraction[graph], self.goal[graph], self.epsilon, self.limit, _ahead(out), partial)
        with _gate() if threads > 1 else nullcontext():
            taken = solve(
                lanes, threads, counter, int(first), int(last), pointer, column, weight, self.bias, out.numpy(), *extra, *tail
            )
        self.steps[graph] = taken


def lu_solve(rows: Rows, segments: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    out = torch.empty(bias.shape, dtype=bias.dtype)
    if out.numel():
        nodes = _array(segments)
        graphs = np.arange(len(nodes) - 1)
        args = (graphs, nodes, *_structure(rows), _as(weight, bias.dtype), _array(bias), out.numpy())
        work = int((np.diff(nodes).astype(np.float64) ** 3).sum()) * bias.shape[1] // 16
        _run("lu", cpu_lu, _packing(bias.shape[1], bias.dtype), work, args)
    return out
