"""Copies of others' classifiers against PyG's and torch's layers, one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from convergent.experiments.folds import Store, scores, train_step
from convergent.experiments.pyg_baselines import NAMES, BatchNorms, GraphNorms, build, kept_nodes
from convergent.tasks.batch import GraphBatch
from experiments.rings import PICKED, graphs

SIZES = [len(graph.x) for graph in graphs()]


@pytest.fixture
def batch() -> GraphBatch:
    return Store(graphs(), "cpu").batch(PICKED)


def of_copy(values: torch.Tensor, batch: GraphBatch, number: int) -> torch.Tensor:
    """Rows of the nodes of one copy, without its padding."""
    assert batch.weight is not None
    return values.view(3, -1, values.shape[1])[number][batch.weight.view(3, -1)[number] > 0]


def test_batch_norm_is_that_of_every_copy_alone(batch: GraphBatch) -> None:
    many, x = BatchNorms(5, 3), torch.randn(len(batch.x), 5, generator=torch.Generator().manual_seed(0))
    ones = [nn.BatchNorm1d(5) for _ in PICKED]
    for training in (True, False):
        found = many.train(training)(x, batch)
        for number, one in enumerate(ones):
            wanted = one.train(training)(of_copy(x, batch, number))
            assert torch.allclose(of_copy(found, batch, number), wanted, atol=1e-5)


def test_graph_norm_has_weights_for_every_copy(batch: GraphBatch) -> None:
    from torch_geometric.nn import GraphNorm

    many, x = GraphNorms(5, 3), torch.randn(len(batch.x), 5, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    for value in many.parameters():
        nn.init.normal_(value, generator=generator)
    assert {value.shape for value in many.parameters()} == {(3, 1, 5)}
    found = many(x, batch)
    for number in range(3):
        one = GraphNorm(5)
        one.load_state_dict({name: value[number, 0].detach() for name, value in many.weights.items()})
        wanted = one(of_copy(x, batch, number), of_copy(batch.batch.unsqueeze(1), batch, number).squeeze(1) - 4 * number)
        assert torch.allclose(of_copy(found, batch, number), wanted, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_copies_do_not_see_each_other(name: str) -> None:
    store, found = Store(graphs(), "cpu"), {}
    for label, parts in {"together": PICKED, "alone": PICKED[:1]}.items():
        torch.manual_seed(0)
        model = build(name, 2, 2, len(parts), SIZES)
        for part in model.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        batch = store.batch(parts)
        losses = torch.stack([train_step(model, optimizer, batch, len(parts)) for _ in range(4)])
        found[label] = losses[:, 0], scores(model.eval(), batch)[: len(PICKED[0])]
    for together, alone in zip(found["together"], found["alone"], strict=True):
        assert torch.allclose(together, alone, atol=1e-3)
    assert found["alone"][0][-1] < found["alone"][0][0]


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_is_judged_by_itself(name: str) -> None:
    torch.manual_seed(0)
    model, store = build(name, 2, 2, 1, SIZES).eval(), Store(graphs(), "cpu")
    alone, among = (scores(model, store.batch([np.array(picked)])) for picked in ([4], [1, 4, 7]))
    assert torch.allclose(alone[0], among[1], atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_any_amount_of_padding_leaves_no_trace(name: str) -> None:
    torch.manual_seed(0)
    store, model = Store(graphs(), "cpu"), build(name, 2, 2, 2, SIZES).eval()
    much, none = (scores(model, store.batch([np.array([4]), picked])) for picked in (np.arange(20), np.array([4])))
    assert torch.allclose(much[0], none[0], atol=1e-5)


def test_sixty_per_cent_of_the_graphs_are_as_large_as_what_is_kept() -> None:
    assert kept_nodes(list(range(1, 101))) == 41
    assert kept_nodes([5] * 10) == 10
