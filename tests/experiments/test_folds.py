"""All folds at once are as one after the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from convergent.baselines import IGNN
from convergent.experiments import kept
from convergent.experiments.folds import Recipe, Split, Store, Trace, cross_validate, scores, side_by_side, steps, train_step
from convergent.experiments.ignn_copies import IGNNCopies
from convergent.nn.model import GraphModel
from convergent.tasks.batch import GraphBatch
from convergent.training.models import CLASSIFICATION, find
from experiments.rings import PICKED, graphs


def one(name: str, seed: int = 0) -> GraphModel:
    torch.manual_seed(seed)
    return find(name, CLASSIFICATION).build(2, 1, outputs=2)


def copies(name: str, count: int) -> torch.nn.Module:
    model = one(name)
    return IGNNCopies(model, count) if isinstance(model, IGNN) else side_by_side(model, count)


def joined(picked: np.ndarray) -> GraphBatch:
    return GraphBatch.join([graphs()[number] for number in picked])


def test_a_batch_has_the_graphs_of_every_copy_and_as_much_of_all() -> None:
    batch = Store(graphs(), "cpu").batch(PICKED)
    slots = 4
    assert batch.num_graphs == 3 * slots
    nodes, edges = len(batch.x) // 3, batch.edge_index.shape[1] // 3
    assert batch.weight is not None
    assert batch.real is not None
    assert torch.equal(batch.edge_index.sort(stable=True).values[0], batch.edge_index[0])
    for number, picked in enumerate(PICKED):
        wanted = joined(picked)
        first, count = number * nodes, wanted.edge_index.shape[1]
        assert torch.equal(batch.x[first : first + len(wanted.x)], wanted.x)
        assert torch.equal(batch.edge_index[:, number * edges : number * edges + count] - first, wanted.edge_index)
        assert torch.equal(batch.batch[first : first + len(wanted.x)] - number * slots, wanted.batch)
        assert torch.equal(batch.y[number * slots : number * slots + len(picked)], wanted.y)
        assert batch.weight[first : first + nodes].sum() == len(wanted.x)
        assert batch.real[number * slots : (number + 1) * slots].tolist() == [place < len(picked) for place in range(slots)]
    assert (batch.batch[batch.edge_index[0]] == batch.batch[batch.edge_index[1]]).all()


@pytest.mark.parametrize("name", ["CGS(4)", "IGNN"])
def test_copies_begin_as_the_model_itself(name: str) -> None:
    # of IGNN every batch has a bound of its own: that of copies is of the copy's graphs alone
    found = scores(copies(name, 3), Store(graphs(), "cpu").batch(PICKED)).view(3, 4, 2)
    for number, picked in enumerate(PICKED):
        assert torch.allclose(found[number, : len(picked)], scores(one(name), joined(picked)), atol=2e-4)


@pytest.mark.parametrize("name", ["CGS(4)", "IGNN"])
def test_copies_learn_as_if_alone(name: str) -> None:
    store = Store(graphs(), "cpu")
    losses = {}
    for label, parts in {"together": PICKED, **{str(n): [part] for n, part in enumerate(PICKED)}}.items():
        model = copies(name, len(parts))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        losses[label] = torch.stack([train_step(model, optimizer, store.batch(parts), len(parts)) for _ in range(4)])
    alone = torch.cat([losses[str(number)] for number in range(3)], 1)
    assert torch.allclose(losses["together"], alone, atol=1e-3)
    assert not torch.allclose(losses["together"][-1], losses["together"][0], atol=1e-2)


def test_an_epoch_sees_every_graph_once_in_steps_of_equal_size() -> None:
    splits = [Split(np.arange(10, 25), np.arange(10)), Split(np.arange(14), np.arange(14, 25))]
    first, second = (steps(splits, Recipe(3, graphs=4), epoch) for epoch in (0, 1))
    assert [[len(part) for part in picked] for picked in first] == [[4, 4], [4, 4], [4, 3], [3, 3]]
    for fold, split in enumerate(splits):
        seen = np.concatenate([picked[fold] for picked in first])
        assert np.array_equal(np.sort(seen), split.train)
        assert not np.array_equal(seen, np.concatenate([picked[fold] for picked in second]))


def test_cross_validation_learns() -> None:
    store = Store(graphs(60), "cpu")
    splits = [Split(np.arange(15, 60), np.arange(15)), Split(np.arange(45), np.arange(45, 60))]
    trace = cross_validate(copies("CGS(4)", 2), store, splits, Recipe(20, graphs=16, rate=3e-3, tests=2))
    assert trace.correct.shape == (2, 20 * 2)
    assert trace.loss.shape == (2, 20)
    assert (trace.loss[:, -1] < 0.7 * trace.loss[:, 0]).all()
    assert (trace.correct.amax(1) >= 12).all()


@pytest.mark.parametrize("name", ["CGS(4)", "IGNN"])
def test_a_training_that_was_cut_goes_on_where_it_was(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, splits = Store(graphs(), "cpu"), [Split(part, part) for part in PICKED]
    monkeypatch.setattr(kept, "EVERY", 0.0)

    def trained(epochs: int, state: Path | None, seed: int = 0) -> Trace:
        model = copies(name, len(splits))
        model.decoder.insert(1, torch.nn.Dropout(0.5))  # which depends on the state of the generator
        torch.manual_seed(seed)
        return cross_validate(model, store, splits, Recipe(epochs, graphs=2), state)

    whole = trained(6, None)
    trained(2, tmp_path / "new" / "state.pt")
    resumed = trained(6, tmp_path / "new" / "state.pt", seed=1)
    assert torch.equal(resumed.loss, whole.loss)
    assert torch.equal(resumed.correct, whole.correct)
    assert not torch.equal(trained(6, None, seed=1).loss, whole.loss)


@pytest.mark.cuda
def test_a_training_on_a_gpu_that_was_cut_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "EVERY", 0.0)
    store, splits = Store(graphs(), "cuda"), [Split(part, part) for part in PICKED]

    def trained(epochs: int, state: Path | None) -> Trace:
        return cross_validate(copies("CGS(4)", len(splits)).to("cuda"), store, splits, Recipe(epochs, graphs=2), state)

    whole = trained(6, None)
    trained(2, tmp_path / "state.pt")
    assert torch.allclose(trained(6, tmp_path / "state.pt").loss, whole.loss, atol=1e-4)
