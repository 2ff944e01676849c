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
