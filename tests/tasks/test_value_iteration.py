from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from convergent import InputError
from convergent.tasks.batch import GraphBatch
from convergent.tasks.value_iteration import Actions, ValueIteration, draw, floor_accuracy, optimal_values, policy_values, score


def sample(graphs=20, seed=0, **ranges) -> GraphBatch:
    return ValueIteration(**ranges).sample(graphs, np.random.default_rng(seed))


@given(st.integers(2, 30), st.integers(1, 12), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_successors_are_distinct_and_others(states, actions, seed) -> None:
    actions = min(actions, states - 1)
    batch = ValueIteration((states, states + 5), (1, actions)).sample(6, np.random.default_rng(seed))
    row, column = batch.edge_index
    assert (row != column).all()
    assert len(torch.unique(row * len(batch.x) + column)) == len(row)
    assert torch.equal(batch.batch[row], batch.batch[column])
    degree = torch.bincount(row, minlength=len(batch.x))
    for graph in range(6):
        assert len(degree[batch.batch == graph].unique()) == 1
    assert (batch.edge_attr.abs() < 1).all()


def test_every_successor_is_equally_likely() -> None:
    table = draw(np.full(4000, 6), np.full(4000, 2), np.random.default_rng(0))
    own = np.arange(len(table.successor)) // 6 * 6
    first = (table.successor - own[:, None])[::6].ravel()  # of the first state of every graph
    counts = np.bincount(first, minlength=6)
    assert counts[0] == 0
    assert (abs(counts[1:] - 1600) < 200).all()


@pytest.mark.parametrize("seed", range(3))
def test_values_solve_the_bellman_equation(seed) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(20, 51, 30)
    table = draw(sizes, rng.integers(5, 11, 30), rng)
    values = optimal_values(table)
    iterated = np.zeros_like(values)
    for _ in range(400):
        iterated = (table.reward + 0.9 * iterated[table.successor]).max(1)
    assert abs(values - iterated).max() < 1e-10


def test_the_value_of_a_policy() -> None:
    following, reward = np.array([1, 2, 0, 0]), np.array([1.0, 0.0, -1.0, 2.0])
    values = policy_values(following, reward)
    np.testing.assert_allclose(values, reward + 0.9 * values[following], atol=1e-12)


def test_sizes_lie_in_their_ranges() -> None:
    batch = sample(200, states=(20, 22), actions=(5, 6))
    assert set(batch.sizes.tolist()) == {20, 21, 22}
    degree = torch.bincount(batch.edge_index[0])
    assert set(degree.tolist()) == {5, 6}


def test_the_same_seed_gives_the_same_data() -> None:
    """On every machine: the digest is part of the test."""
    batch = sample(8, seed=3)
    data = b"".join(part.numpy().tobytes() for part in (batch.edge_index, batch.edge_attr, batch.y))
    assert torch.equal(batch.y, sample(8, seed=3).y)
    assert not torch.equal(batch.edge_attr[:20], sample(8, seed=4).edge_attr[:20])
    assert hashlib.sha256(data).hexdigest()[:16] == DIGEST


DIGEST = "376a8ef51e4abe2d"


def test_scores() -> None:
    batch = sample(10)
    perfect = score(batch.y, batch)
    assert perfect.mape.max() == 0
    assert (perfect.accuracy == 1).all()
    twice = score(2 * batch.y, batch)
    torch.testing.assert_close(twice.mape, torch.full((10,), 100.0, dtype=torch.float64))
    shifted = score(batch.y + 3, batch)  # the same for all states changes no choice
    assert (shifted.accuracy == 1).all()


def test_the_floor_of_accuracy() -> None:
    """Immediate rewards alone give 0.66 to 0.70: what a policy has to beat."""
    for states, actions in ((20, 5), (50, 10)):
        batch = sample(200, states=(states, states), actions=(actions, actions))
        assert 0.62 < float(floor_accuracy(batch).mean()) < 0.74


def test_ties_count_as_right() -> None:
    table = Actions(np.array([[1, 2], [0, 2], [0, 1]]), np.full((3, 2), 0.5))
    from convergent.tasks.value_iteration import as_batch

    batch = as_batch(table, np.array([3]), optimal_values(table))
    assert float(score(torch.randn(3, 1), batch).accuracy) == 1  # whatever is chosen is as good as the best


@pytest.mark.parametrize("ranges", [{"states": (5, 3)}, {"states": (5, 9), "actions": (2, 5)}, {"actions": (0, 3)}])
def test_bad_ranges(ranges) -> None:
    with pytest.raises(InputError, match=r"expected (a range|two whole numbers)"):
        ValueIteration(**ranges)


@pytest.mark.parametrize("change", [{"pool": 1.5}, {"pool": "x"}, {"states": ("a", "b")}, {"states": (20,)}, {"pool": 10**10}])
def test_other_settings(change) -> None:
    with pytest.raises(InputError, match=f"{next(iter(change))}: expected"):
        ValueIteration(**change)


def test_what_does_not_fit_in_memory() -> None:
    with pytest.raises(InputError, match="states: expected sizes whose graphs fit in memory"):
        ValueIteration(states=(10**6, 10**6))
    with pytest.raises(
        InputError, match="graphs: expected at most 858,993 graphs of up to 50 states, as more may not fit in memory"
    ):
        sample(10**9)
