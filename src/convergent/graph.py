"""Graph: the rows, columns and segments of a (batched) sparse operator, indexed once and kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from convergent.errors import InputError, expect
from convergent.kernels import Rows, backend
from convergent.kernels.arguments import described, expect_flags

if TYPE_CHECKING:
    from torch_geometric.data import Data

FLOWS = ("target_to_source", "source_to_target")
SMALL = 1 << 14  # edges of a graph that fits in cache with a block of heads
FEW = 16  # graphs that leave most of a GPU idle if each is solved by one multiprocessor: then only those of SMALL / 4 edges are


class Subset(NamedTuple):
    """Some graphs of a batch, as a batch of their own."""

    graph: Graph
    nodes: Tensor  # [n] where its nodes stood
    edges: Tensor  # [e] where its edges stood


class Graph:
    r"""The structure of a block-diagonal sparse operator :math:`y_i = \sum_{e: i \to j} w_e x_j`.

    An edge :math:`i \to j` means that node i depends on node j: i sums over its outgoing edges, as in the paper. PyG calls this
    ``flow="target_to_source"``; with ``"source_to_target"`` j sums over its incoming edges. Parallel edges add, self loops count,
    and a node without edges of its own has an empty row. Building takes time linear in nodes and edges; the transpose is built
    when a gradient first needs it, and kept.

    Args:
        edge_index: integers [2, E], in any order; or a PyG ``Data`` or ``Batch``, from which the other arguments are then taken.
        num_nodes: the number of nodes N.
        batch: for several graphs side by side, the graph of every node, [N], never decreasing; edges must stay within a graph.
        flow: the end of an edge that sums: "target_to_source" (the source) or "source_to_target" (the target).
    """

    num_nodes: int
    num_edges: int
    num_graphs: int
    flow: str
    row: Tensor  # [E] the node that aggregates, in the order of edge_index
    column: Tensor  # [E] the node it reads
    rows: Rows  # the same, sorted by row
    segments: Tensor  # [G + 1] graph g holds the nodes segments[g] .. segments[g + 1]

    def __init__(
        self,
        edge_index: Tensor | Data,
        num_nodes: int | None = None,
        batch: Tensor | None = None,
        flow: str = "target_to_source",
    ):
        pointer = None
        if not isinstance(edge_index, Tensor):
            data: Any = edge_index
            found = getattr(data, "edge_index", None)
            expect(isinstance(found, Tensor), "edge_index", "a tensor or PyG data with edges", type(data).__name__)
            edge_index, num_nodes = data.edge_index, num_nodes if num_nodes is not None else data.num_nodes
            batch, pointer = data.get("batch", batch), data.get("ptr", None)
        expect(flow in FLOWS, "flow", f"one of {FLOWS}", repr(flow))
        edge_index = _untransformed("edge_index", edge_index)
        batch, pointer = _untransformed("batch", batch), _untransformed("ptr", pointer)
        with _outside_transforms():
            self._build(edge_index, batch, pointer, num_nodes, flow)

    def _build(self, edge_index: Tensor, batch: Tensor | None, pointer: Tensor | None, num_nodes: int | None, flow: str) -> None:
        edge_index = _checked_edges(edge_index, num_nodes)
        assert num_nodes is not None
        self.num_nodes, self.num_edges, self.flow = int(num_nodes), edge_index.shape[1], flow
        short = max(self.num_nodes, self.num_edges) < 2**31
        row, column = (edge_index if flow == "target_to_source" else edge_index.flip(0)).to(torch.int32 if short else torch.int64)
        self.row, self.column = row.contiguous(), column.contiguous()
        self.rows = _index(self.row, self.column, self.num_nodes)
        self.segments = _segments(batch, pointer, self.num_nodes, self.row)
        self.num_graphs = len(self.segments) - 1
        self._transpose: Graph | None = None
        self.cache: dict[str, Any] = {}
        if self.num_graphs > 1:
            inside = self.batch[self.row] == self.batch[self.column]
            expect(bool(inside.all()), "edge_index", "edges that stay within their graph of the batch", _first_false(inside))

    @classmethod
    def _assemble(cls, num_nodes: int, flow: str, row: Tensor, column: Tensor, rows: Rows, segments: Tensor) -> Graph:
        graph = cls.__new__(cls)
        graph.num_nodes, graph.num_edges, graph.num_graphs = num_nodes, len(row), len(segments) - 1
        graph.flow, graph.row, graph.column, graph.rows, graph.segments = flow, row, column, rows, segments
        graph._transpose, graph.cache = None, {}
        return graph

    @property
    def device(self) -> torch.device:
        return self.row.device

    @property
    def batch(self) -> Tensor:
        """The graph of every node, [N]."""
        graphs = torch.arange(self.num_graphs, device=self.device)
        return torch.repeat_interleave(graphs, self.segments.diff(), output_size=self.num_nodes)

    @property
    def out_degree(self) -> Tensor:
        """The number of edges each node sums over, [N]."""
        return self.rows.pointer.diff()

    @property
    def largest(self) -> int:
        """The number of nodes of the largest graph of the batch."""
        return self.cached("largest", lambda: int(self.segments.diff().max()) if self.num_graphs else 0)

    @property
    def small(self) -> Tensor | None:
        """The graphs that fit in cache, bool [G]; None: all of them."""

        def find() -> Tensor | None:
            few = self.device.type == "cuda" and self.num_graphs < FEW
            fits = self.rows.pointer[self.segments.long()].diff() <= (SMALL // 4 if few else SMALL)
            return None if bool(fits.all()) else fits

        return self.cached("small", find)

    @property
    def any_small(self) -> bool:
        return self.cached("any_small", lambda: self.small is None or bool(self.small.any()))

    def cached(self, name: str, make: Callable[[], Any]) -> Any:
        """Something derived from the structure alone, such as a multigrid hierarchy: made once and kept."""
        if name not in self.cache:
            self.cache[name] = make()
        return self.cache[name]

    def spread(self, values: Tensor) -> Tensor:
        """Per graph [G, ...] -> per node [N, ...] (or [1, ...], which broadcasts, for a single graph)."""
        if values.shape[0] != self.num_graphs:
            raise InputError(f"values: expected {self.num_graphs} rows, one per graph, but got {values.shape[0]}")
        return values if self.num_graphs == 1 else values[self.batch]

    def transpose(self) -> Graph:
        """The graph with every edge reversed; its transpose is this graph again."""
        if self._transpose is None:
            with _outside_transforms():
                rows = _index(self.column, self.row, self.num_nodes)
            other = FLOWS[1 - FLOWS.index(self.flow)]
            turned = Graph._assemble(self.num_nodes, other, self.column, self.row, rows, self.segments)
            turned._transpose, self._transpose = self, turned
        return self._transpose

    def to(self, device: torch.device | str) -> Graph:
        """This graph on another device."""
        if torch.device(device) == self.device:
            return self
        pointer, column, order = self.rows
        rows = Rows(pointer.to(device), column.to(device), None if order is None else order.to(device))
        moved = (self.row.to(device), self.column.to(device), rows, self.segments.to(device))
        return Graph._assemble(self.num_nodes, self.flow, *moved)

    def subset(self, keep: Tensor) -> Subset:
        """The graphs where ``keep`` [G] is true as a batch of their own, with the indices of their nodes and edges in this one."""
        expect_flags("keep", keep, self.num_graphs, self.device)
        kept = keep[self.batch]
        nodes = kept.nonzero().squeeze(1)
        edges = kept[self.row].nonzero().squeeze(1)
        place = (kept.cumsum(0) - 1).to(self.row.dtype)
        row, column = place[self.row[edges]], place[self.column[edges]]
        sizes = self.segments.diff()[keep]
        segments = torch.nn.functional.pad(sizes.cumsum(0), (1, 0)).to(self.segments.dtype)
        graph = Graph._assemble(len(nodes), self.flow, row, column, _index(row, column, len(nodes)), segments)
        return Subset(graph, nodes, edges)

    def tensors(self) -> list[Tensor]:
        """Every tensor of the structure and of its transpose, for operators that take nothing else."""
        empty = self.row[:0]
        turned = self.transpose()
        rows = [empty if part is None else part for part in (*self.rows, *turned.rows)]
        return [self.segments, self.row, self.column, *rows]

    @classmethod
    def from_tensors(cls, tensors: list[Tensor], flow: str) -> Graph:
        """The way back from ``tensors``."""
        segments, row, column, *parts = tensors
        edges = row.shape[0]
        here, there = (
            Rows(pointer, index, order if order.shape[0] == edges else None) for pointer, index, order in (parts[:3], parts[3:])
        )
        nodes = parts[0].shape[0] - 1
        graph = cls._assemble(nodes, flow, row, column, here, segments)
        graph._transpose = cls._assemble(nodes, FLOWS[1 - FLOWS.index(flow)], column, row, there, segments)
        graph._transpose._transpose = graph
        return graph

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Graph:
        """The same structure and its transpose with every tensor changed, as by a move to another device."""
        graph = Graph.from_tensors([change(tensor) for tensor in self.tensors()], self.flow)
        for copy, original in ((graph, self), (graph.transpose(), self.transpose())):
            copy.cache = _numbers(original.cache)
        return graph

    def overwrite(self, other: Graph) -> None:
        """Take over a structure of the same sizes in place, so that whatever holds on to these tensors reads the new one.

        Numbers in the cache stay as they are: whoever overwrites a structure sees to it that they are bounds that still hold.
        """
        expect(other.flow == self.flow, "other", f"a graph with flow {self.flow!r}", repr(other.flow))
        overwrite(self.tensors(), other.tensors())  # an order that only one of them has shows in the shapes
        for graph in (self, self.transpose()):
            graph.cache = _numbers(graph.cache)

    def __repr__(self) -> str:
        sizes = f"num_nodes={self.num_nodes}, num_edges={self.num_edges}, num_graphs={self.num_graphs}"
        return f"Graph({sizes}, flow={self.flow!r})"


def traced(tensor: Tensor) -> bool:
    """Whether a compiler is looking on, so that native code must hide in an operator."""
    return torch.compiler.is_compiling() or type(tensor) not in (Tensor, torch.nn.Parameter)


def _outside_transforms() -> AbstractContextManager[object]:
    """Structure is no part of a transform of torch.func that may be under way; a compiler cannot look into the guard."""
    return nullcontext() if torch.compiler.is_compiling() else torch._C._DisableFuncTorch()


def _untransformed(name: str, value: Any) -> Any:
    """The tensor itself where a transform of torch.func, inside which it was computed, has wrapped it."""
    if not isinstance(value, Tensor) or torch.compiler.is_compiling():
        return value
    while torch._C._functorch.is_functorch_wrapped_tensor(value):
        each = torch._C._functorch.is_batchedtensor(value)
        expect(not each, name, "one structure for a whole batch of torch.func.vmap", "one for each of its members")
        value = torch._C._functorch.get_unwrapped(value)
    return value


def overwrite(mine: list[Tensor], theirs: list[Tensor]) -> None:
    """Copy tensors into others of the same shapes; from pinned memory to a GPU nobody waits."""
    kinds = [[(list(tensor.shape), tensor.dtype) for tensor in tensors] for tensors in (mine, theirs)]
    expect(kinds[0] == kinds[1], "other", f"tensors like {kinds[0]}", kinds[1])
    torch._foreach_copy_(mine, theirs, non_blocking=True)


def _numbers(cache: dict[str, Any]) -> dict[str, Any]:
    """What a cache knows without holding a tensor, or anything made of one."""
    return {name: value for name, value in cache.items() if value is None or isinstance(value, int)}


INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _checked_edges(edge_index: Tensor, num_nodes: int | None) -> Tensor:
    fits = edge_index.dim() == 2 and len(edge_index) == 2 and edge_index.dtype in INTEGERS
    expect(fits and _has_numbers(edge_index), "edge_index", "integers of shape [2, E]", described(edge_index))
    number = isinstance(num_nodes, int) and not isinstance(num_nodes, bool)
    expect(number and num_nodes >= 0, "num_nodes", "a number of nodes, 0 or more", described(num_nodes))  # type: ignore[operator]
    if edge_index.numel():
        low, high = (int(end) for end in edge_index.aminmax())
        came = f"indices from {low} to {high}"
        expect(low >= 0 and high < num_nodes, "edge_index", f"indices from 0 to {num_nodes} - 1", came)  # type: ignore[operator]
    return edge_index


def _has_numbers(tensor: Tensor) -> bool:
    """Whether it is dense, and not only a description of a tensor."""
    return tensor.layout is torch.strided and not tensor.is_meta


def _segments(batch: Tensor | None, pointer: Tensor | None, num_nodes: int, row: Tensor) -> Tensor:
    """Boundaries of the graphs of a batch, [G + 1]."""
    if pointer is not None:
        return _checked_pointer(pointer, num_nodes, row)
    if batch is None:
        return torch.tensor([0, num_nodes], dtype=row.dtype, device=row.device)
    fits = isinstance(batch, Tensor) and batch.shape == (num_nodes,) and batch.dtype in INTEGERS and _has_numbers(batch)
    expect(fits, "batch", f"integers of shape [{num_nodes}]", described(batch))
    expect(batch.device == row.device, "batch", f"a tensor on {row.device}", batch.device)
    if num_nodes == 0:
        return torch.zeros(1, dtype=row.dtype, device=row.device)
    rising = batch[1:] >= batch[:-1]
    expect(bool(rising.all()) and int(batch[0]) >= 0, "batch", "graph numbers that never decrease", _first_false(rising))
    expect(int(batch[-1]) < 2**31, "batch", "graph numbers below 2**31", int(batch[-1]))
    counts = torch.bincount(batch)
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(row.dtype)


def _checked_pointer(pointer: Tensor, num_nodes: int, row: Tensor) -> Tensor:
    """The ``ptr`` of PyG's batches: where every graph begins, and the number of nodes."""
    fits = isinstance(pointer, Tensor) and pointer.dim() == 1 and pointer.dtype in INTEGERS and _has_numbers(pointer)
    expect(fits and len(pointer) > 0, "ptr", "integers of shape [graphs + 1]", described(pointer))
    expect(pointer.device == row.device, "ptr", f"a tensor on {row.device}", pointer.device)
    ends = f"{int(pointer[0])} .. {int(pointer[-1])}"
    fits = bool((pointer[1:] >= pointer[:-1]).all()) and int(pointer[0]) == 0 and int(pointer[-1]) == num_nodes
    expect(fits, "ptr", f"numbers that never decrease, from 0 to the number of nodes, {num_nodes}", ends)
    return pointer.to(row.dtype)


def _index(row: Tensor, column: Tensor, num_nodes: int) -> Rows:
    """Edges sorted by row, by a counting sort that keeps the order within a row."""
    if traced(row):
        return Rows(*torch.ops.convergent.index(row, column, num_nodes))
    if bool((row[1:] >= row[:-1]).all()):
        pointer = torch.zeros(num_nodes + 1, dtype=row.dtype, device=row.device)
        pointer[1:] = torch.bincount(row, minlength=num_nodes).cumsum(0)
        return Rows(pointer, column, None)
    return Rows(*_sorted_index(row, column, num_nodes))


def _sorted_index(row: Tensor, column: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    pointer, order = (index.to(row.dtype) for index in backend(row).group(row, num_nodes))
    return pointer, column[order], order


@torch.library.custom_op("convergent::index", mutates_args=())
def _index_op(row: Tensor, column: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    return _sorted_index(row, column, num_nodes)


@_index_op.register_fake
def _(row: Tensor, column: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    return row.new_empty(num_nodes + 1), torch.empty_like(column), torch.empty_like(row)


def _first_false(flags: Tensor) -> str:
    wrong = (~flags).nonzero()
    return f"a violation at position {int(wrong[0])}" if len(wrong) else "a negative number"
