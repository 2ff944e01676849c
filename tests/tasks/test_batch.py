from __future__ import annotations

import numpy as np
import pytest
import torch

from convergent import InputError
from convergent.tasks.batch import GraphBatch
from convergent.tasks.value_iteration import ValueIteration


@pytest.fixture
def batch() -> GraphBatch:
    return ValueIteration().sample(5, np.random.default_rng(0))


def same(left: GraphBatch, right: GraphBatch) -> bool:
    names = ("x", "edge_index", "edge_attr", "y", "batch")
    return left.num_graphs == right.num_graphs and all(torch.equal(getattr(left, name), getattr(right, name)) for name in names)


def test_split_and_join(batch) -> None:
    parts = batch.split()
    assert [part.num_graphs for part in parts] == [1] * 5
    assert [len(part.x) for part in parts] == batch.sizes.tolist()
    assert same(GraphBatch.join(parts), batch)
    assert same(GraphBatch.join([batch]), batch)


def test_answers_of_graphs() -> None:
    one = GraphBatch(torch.zeros(2, 1), torch.tensor([[0], [1]]), torch.ones(1, 1), torch.tensor([1]), torch.zeros(2).long(), 1)
    joined = GraphBatch.join([one, one, one])
    assert joined.y.tolist() == [1, 1, 1]
    assert [part.y.tolist() for part in joined.split()] == [[1], [1], [1]]


def test_the_graph_is_made_once(batch) -> None:
    assert batch.graph is batch.graph
    assert batch.graph.num_graphs == 5


def test_to_and_from_pyg(batch) -> None:
    assert same(GraphBatch.from_pyg(batch.to_pyg()), batch)


def test_pyg_without_what_is_needed() -> None:
    from torch_geometric.data import Data

    with pytest.raises(InputError, match=r"data\[0\]: expected an attribute y"):
        GraphBatch.from_pyg([Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]))])
    plain = Data(x=torch.ones(2), edge_index=torch.tensor([[0], [1]]), y=torch.tensor(3))
    found = GraphBatch.from_pyg([plain])
    assert (found.x.shape, found.edge_attr.tolist(), found.y.tolist()) == ((2, 1), [[1.0]], [3])


def test_nothing_to_join() -> None:
    with pytest.raises(InputError, match="parts: expected one batch or more"):
        GraphBatch.join([])


def test_padding_is_many_small_graphs_of_self_loops(batch) -> None:
    batch.graph  # noqa: B018  (sorted by row, as the padded one has to be)
    nodes, edges = len(batch.x), batch.edge_index.shape[1]
    padded = batch.padded(nodes + 21, edges + 50, 12)
    assert (len(padded.x), padded.edge_index.shape[1], padded.num_graphs) == (nodes + 21, edges + 50, 12)
    assert (padded.graph.num_graphs, padded.graph.rows.order) == (12, None)
    assert padded.sizes[5:].tolist() == [3] * 7
    loops = padded.edge_index[:, edges:]
    assert torch.equal(loops[0], loops[1])
    assert set(padded.graph.out_degree[nodes:].tolist()) == {2, 3}
    assert padded.weight is not None
    assert padded.weight.flatten().tolist() == [1.0] * nodes + [0.0] * 21
    assert padded.real is not None
    assert padded.real.tolist() == [True] * 5 + [False] * 7
    assert all(float(part.abs().sum()) == 0 for part in (padded.x[nodes:], padded.y[nodes:], padded.edge_attr[edges:]))
    for part, original in zip(padded.split()[:5], batch.split(), strict=True):
        assert same(part, original)


@pytest.mark.parametrize(("more_nodes", "more_edges", "more_graphs"), [(1, 0, 3), (2, 0, 1), (1, 9, 1), (5, 2, 5), (0, 0, 0)])
def test_any_padding_is_a_valid_batch(batch, more_nodes, more_edges, more_graphs) -> None:
    padded = batch.padded(len(batch.x) + more_nodes, batch.edge_index.shape[1] + more_edges, 5 + more_graphs)
    assert padded.graph.num_graphs == padded.num_graphs == 5 + more_graphs
    assert int(padded.sizes.sum()) == len(padded.x)


@pytest.mark.parametrize(("change", "name"), [((-1, 0, 0), "nodes"), ((0, -1, 0), "edges"), ((0, 0, -1), "graphs")])
def test_padding_only_adds(batch, change, name) -> None:
    sizes = (len(batch.x), batch.edge_index.shape[1], batch.num_graphs)
    with pytest.raises(InputError, match=f"{name}: expected"):
        batch.padded(*(size + more for size, more in zip(sizes, change, strict=True)))


@pytest.mark.parametrize("change", [(0, 3, 0), (0, 0, 2), (4, 4, 0), (0, 3, 1)])
def test_padding_needs_nodes_and_graphs_together(batch, change) -> None:
    sizes = (len(batch.x), batch.edge_index.shape[1], batch.num_graphs)
    with pytest.raises(InputError, match="nodes: expected more nodes where"):
        batch.padded(*(size + more for size, more in zip(sizes, change, strict=True)))


def test_answers_of_graphs_are_not_padded() -> None:
    one = GraphBatch(torch.zeros(2, 1), torch.tensor([[0], [1]]), torch.ones(1, 1), torch.tensor([1]), torch.zeros(2).long(), 1)
    with pytest.raises(InputError, match="y: expected answers per node"):
        one.padded(4, 4, 2)


def test_the_graph_moves_with_its_batch(batch) -> None:
    assert batch.to("cpu") is batch
    assert "graph" not in batch.mapped(torch.clone).__dict__
    batch.graph  # noqa: B018  (now there is one)
    copy = batch.mapped(torch.clone)
    assert copy.__dict__["graph"] is copy.graph
    assert copy.graph.row is not batch.graph.row
    assert torch.equal(copy.graph.transpose().rows.column, batch.graph.transpose().rows.column)
    assert same(copy, batch)


def test_a_batch_takes_the_place_of_another() -> None:
    one, two = (ValueIteration((10, 10), (3, 3)).sample(4, np.random.default_rng(seed)) for seed in (0, 1))
    held = one.padded(50, 130, 6).mapped(torch.clone)
    held.graph  # noqa: B018
    tensors = [tensor.data_ptr() for tensor in (*held.tensors(), *held.graph.tensors())]
    new = two.padded(50, 130, 6)
    held.overwrite(new)
    assert same(held, new)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(held.graph.tensors(), new.graph.tensors(), strict=True))
    assert tensors == [tensor.data_ptr() for tensor in (*held.tensors(), *held.graph.tensors())]
    with pytest.raises(InputError, match="other: expected tensors like"):
        held.overwrite(two.padded(51, 130, 6))
