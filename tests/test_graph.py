from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from convergent import Graph, InputError
from problems import random_batch


def dense(graph: Graph, weight: torch.Tensor) -> torch.Tensor:
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=weight.dtype)
    pointer, column, order = graph.rows
    for row in range(graph.num_nodes):
        for position in range(int(pointer[row]), int(pointer[row + 1])):
            edge = position if order is None else int(order[position])
            matrix[row, int(column[position])] += weight[edge]
    return matrix


@given(st.integers(0, 9), st.floats(0, 4), st.integers(0, 10_000))
def test_rows_and_transpose_hold_every_edge_once(size: int, degree: float, seed: int) -> None:
    graph = random_batch([size], degree, seed)
    weight = torch.randn(graph.num_edges, dtype=torch.float64)
    expected = torch.zeros(size, size, dtype=torch.float64)
    expected.index_put_((graph.row.long(), graph.column.long()), weight, accumulate=True)
    torch.testing.assert_close(dense(graph, weight), expected)
    torch.testing.assert_close(dense(graph.transpose(), weight), expected.T)


def test_flow_says_which_end_aggregates() -> None:
    index = torch.tensor([[0, 1], [1, 2]])
    assert Graph(index, 3).row.tolist() == [0, 1]
    assert Graph(index, 3, flow="source_to_target").row.tolist() == [1, 2]
    assert Graph(index, 3).transpose().flow == "source_to_target"


def test_transpose_is_built_once_and_leads_back() -> None:
    graph = random_batch([5], 2, 0)
    assert graph.transpose() is graph.transpose()
    assert graph.transpose().transpose() is graph


def test_sorted_edges_are_not_permuted() -> None:
    assert Graph(torch.tensor([[0, 0, 1], [1, 1, 0]]), 2).rows.order is None
    assert Graph(torch.tensor([[1, 0, 0], [0, 1, 1]]), 2).rows.order is not None


def test_indices_are_short() -> None:
    graph = random_batch([4, 4], 2, 0)
    assert all(part.dtype == torch.int32 for part in graph.tensors())


def test_accepts_data_and_batch() -> None:
    one = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
    assert repr(Graph(one)) == "Graph(num_nodes=3, num_edges=2, num_graphs=1, flow='target_to_source')"
    empty = Data(edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=0)
    both = Graph(Batch.from_data_list([one, one, empty]))
    assert (both.num_graphs, both.segments.tolist()) == (3, [0, 3, 6, 6])
    assert both.batch.tolist() == [0, 0, 0, 1, 1, 1]


def test_empty_graphs_are_valid() -> None:
    nothing = Graph(torch.zeros(2, 0, dtype=torch.long), 0)
    assert (nothing.num_nodes, nothing.num_graphs, nothing.largest) == (0, 1, 0)
    assert Graph(torch.zeros(2, 0, dtype=torch.long), 0, batch=torch.zeros(0, dtype=torch.long)).num_graphs == 0


def test_subset_keeps_edges_and_order() -> None:
    graph = random_batch([3, 0, 4, 5], 3, 1)
    keep = torch.tensor([False, True, True, False])
    subset = graph.subset(keep)
    assert subset.graph.segments.tolist() == [0, 0, 4]
    assert subset.nodes.tolist() == [3, 4, 5, 6]
    assert (subset.graph.row.long() + 3).tolist() == graph.row[subset.edges].tolist()
    assert (subset.graph.column.long() + 3).tolist() == graph.column[subset.edges].tolist()


def test_tensors_lead_back() -> None:
    graph = random_batch([3, 4], 3, 1)
    again = Graph.from_tensors(graph.tensors(), graph.flow)
    weight = torch.randn(graph.num_edges, dtype=torch.float64)
    torch.testing.assert_close(dense(again, weight), dense(graph, weight))
    torch.testing.assert_close(dense(again.transpose(), weight), dense(graph, weight).T)


def test_moves_between_devices() -> None:
    graph = random_batch([3, 4], 3, 1)
    assert graph.to("cpu") is graph
    assert graph.to("meta").device.type == "meta"


def test_a_copy_keeps_numbers_and_no_tensors() -> None:
    graph = random_batch([3, 4], 3, 1)
    graph.cached("max_degree", lambda: 7)
    graph.cached("made of tensors", lambda: graph.row + 1)
    graph.transpose().cached("max_degree", lambda: 9)
    copy = graph.mapped(torch.clone)
    assert (copy.cache, copy.transpose().cache) == ({"max_degree": 7}, {"max_degree": 9})
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(copy.tensors(), graph.tensors(), strict=True))


def test_a_structure_is_overwritten_in_place() -> None:
    graph, other = random_batch([3, 4], 3, 1).mapped(torch.clone), random_batch([2, 5], 3, 2)
    assert graph.num_edges == other.num_edges
    graph.cache |= {"max_degree": 100, "layout": object()}
    row, turned = graph.row, graph.transpose()
    graph.overwrite(other)
    assert graph.row is row
    assert graph.transpose() is turned
    assert graph.cache == {"max_degree": 100}
    weight = torch.randn(graph.num_edges, dtype=torch.float64)
    torch.testing.assert_close(dense(graph, weight), dense(other, weight))
    torch.testing.assert_close(dense(turned, weight), dense(other, weight).T)
    assert graph.segments.tolist() == other.segments.tolist()


def test_only_a_structure_of_the_same_kind_takes_its_place() -> None:
    graph = Graph(torch.tensor([[1, 0], [0, 1]]), 2)
    for other in (
        Graph(torch.tensor([[1, 0, 0], [0, 1, 1]]), 2),
        Graph(torch.tensor([[1, 0], [0, 1]]), 3),
        Graph(torch.tensor([[1, 0], [0, 1]]), 2, batch=torch.tensor([0, 0])).subset(torch.tensor([True])).graph.transpose(),
        Graph(torch.tensor([[0, 1], [1, 0]]), 2),  # sorted by row: it has no order
    ):
        with pytest.raises(InputError, match="other: expected"):
            graph.overwrite(other)


TWO = torch.tensor([[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"edge_index": TWO.float(), "num_nodes": 2}, r"edge_index: expected integers of shape \[2, E\], but got torch.float32"),
        ({"edge_index": TWO[0], "num_nodes": 2}, r"edge_index: expected integers of shape \[2, E\].*shape \[2\]"),
        ({"edge_index": TWO, "num_nodes": 1}, "edge_index: expected indices from 0 to 1 - 1, but got indices from 0 to 1"),
        ({"edge_index": -TWO, "num_nodes": 2}, "edge_index: .*but got indices from -1 to 0"),
        ({"edge_index": TWO, "num_nodes": None}, "num_nodes: expected a number of nodes"),
        ({"edge_index": TWO, "num_nodes": -1}, "num_nodes: expected a number of nodes, 0 or more, but got -1"),
        ({"edge_index": TWO, "num_nodes": 2, "flow": "up"}, "flow: expected one of .* but got 'up'"),
        ({"edge_index": TWO, "num_nodes": 2, "batch": torch.tensor([0])}, r"batch: expected integers of shape \[2\]"),
        ({"edge_index": TWO, "num_nodes": 2, "batch": torch.tensor([1, 0])}, "batch: expected graph numbers that never"),
        ({"edge_index": TWO, "num_nodes": 2, "batch": torch.tensor([0, 1])}, "edge_index: expected edges that stay within"),
        ({"edge_index": TWO, "num_nodes": 2, "batch": torch.tensor([-1, 0])}, "batch: expected graph numbers that never decrease"),
        (
            {"edge_index": TWO, "num_nodes": 2, "batch": torch.tensor([False, True])},
            "batch: expected integers.*torch.bool",
        ),
        (
            {"edge_index": TWO, "num_nodes": 2, "batch": torch.tensor([0j, 1])},
            "batch: expected integers.*torch.complex64",
        ),
        ({"edge_index": TWO, "num_nodes": 2, "batch": torch.tensor([0, 2**40])}, r"batch: expected graph numbers below 2\*\*31"),
        ({"edge_index": TWO, "num_nodes": 2, "batch": TWO[0].to("meta")}, "batch: expected integers"),
        ({"edge_index": TWO, "num_nodes": 2, "batch": [0, 0]}, r"batch: expected integers of shape \[2\], but got \[0, 0\]"),
        ({"edge_index": TWO.bool(), "num_nodes": 2}, r"edge_index: expected integers of shape \[2, E\], but got torch.bool"),
        ({"edge_index": TWO + 0j, "num_nodes": 2}, r"edge_index: expected integers of shape \[2, E\], but got torch.complex64"),
        ({"edge_index": TWO.to("meta"), "num_nodes": 2}, r"edge_index: expected integers of shape \[2, E\]"),
        ({"edge_index": TWO.to_sparse(), "num_nodes": 2}, r"edge_index: expected integers of shape \[2, E\]"),
        ({"edge_index": TWO, "num_nodes": 2.0}, "num_nodes: expected a number of nodes, 0 or more, but got 2.0"),
        ({"edge_index": TWO.int() + 2**30, "num_nodes": 2}, "edge_index: expected indices from 0 to 2 - 1"),
        ({"edge_index": Data(num_nodes=2)}, "edge_index: expected a tensor or PyG data with edges, but got Data"),
        ({"edge_index": [[0], [1]], "num_nodes": 2}, "edge_index: expected a tensor or PyG data with edges, but got list"),
    ],
)
def test_bad_input_is_named(arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Graph(**arguments)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8])
def test_any_integers_are_indices(dtype: torch.dtype) -> None:
    graph = Graph(TWO.to(dtype), 2, batch=torch.zeros(2, dtype=dtype))
    assert (graph.row.tolist(), graph.column.tolist(), graph.row.dtype) == ([0, 1], [1, 0], torch.int32)
    strided = torch.stack([TWO, TWO], 2)[:, :, 0].to(dtype)
    assert Graph(strided, 2).column.tolist() == [1, 0]


@pytest.mark.parametrize("pointer", [[0, 1], [0, 3], [1, 2], [0, 2, 1, 2], [], [-1, 2], [0.0, 2.0]], ids=str)
def test_the_pointer_of_a_batch_has_to_fit_its_nodes(pointer: list[int]) -> None:
    data = Data(edge_index=TWO, num_nodes=2, ptr=torch.tensor(pointer))
    with pytest.raises(InputError, match="ptr: expected"):
        Graph(data)
