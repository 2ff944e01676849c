"""Graph value iteration (section 3.1 of the paper): the values of the states of a deterministic decision process.

A state i has n_a actions, each a transition i -> j with a reward r_ij:

    V_i = max_j (r_ij + 0.9 V_j)

Successors are distinct and never the state itself; rewards are uniform on (-1, 1). Edges carry rewards, nodes a zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from convergent.errors import expect
from convergent.settings import Count, check_fields
from convergent.tasks.batch import MOST_NUMBERS, GraphBatch

DISCOUNT = 0.9
DOUBLINGS = 9  # 0.9 ** 512 is below 1e-23
EXACT = 1e-10  # what the Bellman equation may be off by


class Actions(NamedTuple):
    """The decision processes of a batch, one row per state, as wide as the largest number of actions."""

    successor: np.ndarray  # [N, A], numbers of states in the batch
    reward: np.ndarray  # [N, A]; minus infinity where a state has fewer actions

    @property
    def valid(self) -> np.ndarray:
        return np.isfinite(self.reward)


@dataclass(frozen=True)
class ValueIteration:
    """Random decision processes.

    Args:
        states: the smallest and the largest number of states.
        actions: the smallest and the largest number of actions per state.
        pool: train on so many fixed graphs; without it every batch is new.
    """

    states: tuple[Count, Count] = (20, 50)
    actions: tuple[Count, Count] = (5, 10)
    pool: Count | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        low, high = self.states
        expect(1 <= low <= high, "states", "a range such as (20, 50)", self.states)
        few, many = self.actions
        expect(1 <= few <= many < low, "actions", f"a range from 1 on, below the smallest number of states, {low}", self.actions)
        expect(high * high <= MOST_NUMBERS, "states", "sizes whose graphs fit in memory", self.states)
        self.check_memory(self.pool or 0, "pool")

    def check_memory(self, graphs: int, name: str) -> None:
        """Raise unless so many graphs at once fit in memory; ``name`` is the setting that asks for them."""
        most = MOST_NUMBERS // self.states[1] ** 2
        expect(
            graphs <= most,
            name,
            f"at most {most:,} graphs of up to {self.states[1]:,} states, as more may not fit in memory",
            graphs,
        )

    def sample(self, graphs: int, rng: np.random.Generator) -> GraphBatch:
        """That many random decision processes with their exact values."""
        self.check_memory(graphs, "graphs")
        sizes = rng.integers(self.states[0], self.states[1] + 1, graphs)
        actions = rng.integers(self.actions[0], self.actions[1] + 1, graphs)
        table = draw(sizes, actions, rng)
        return as_batch(table, sizes, optimal_values(table))


def draw(sizes: np.ndarray, actions: np.ndarray, rng: np.random.Generator) -> Actions:
    """Distinct successors by the order of random keys: a graph's own state and places beyond its size have the last keys."""
    nodes, widest, most = int(sizes.sum()), int(sizes.max(initial=1)), int(actions.max(initial=1))
    start = np.repeat(np.cumsum(sizes) - sizes, sizes)
    own = np.arange(nodes) - start
    keys = rng.random((nodes, widest))
    keys[np.arange(widest) >= np.repeat(sizes, sizes)[:, None]] = 2.0
    keys[np.arange(nodes), own] = 2.0
    chosen = np.argpartition(keys, most - 1, axis=1)[:, :most] if most < widest else np.argsort(keys, axis=1)[:, :most]
    # the keys of those chosen are in no order: put the smallest first, so that a state with fewer actions takes its first ones
    chosen = np.take_along_axis(chosen, np.argsort(np.take_along_axis(keys, chosen, 1), axis=1), 1)
    reward = rng.uniform(-1, 1, (nodes, most))
    reward[np.arange(most) >= np.repeat(actions, sizes)[:, None]] = -np.inf
    return Actions(np.where(np.isfinite(reward), chosen + start[:, None], np.arange(nodes)[:, None]), reward)


def optimal_values(table: Actions) -> np.ndarray:
    """The exact values, by policy iteration (Howard 1960)."""
    states = np.arange(len(table.reward))
    choice = table.reward.argmax(1) if len(states) else states
    for _ in range(1000):
        values = policy_values(table.successor[states, choice], table.reward[states, choice])
        gains = action_values(table, values)
        better = gains.argmax(1) if len(states) else states
        improves = gains[states, better] > gains[states, choice] + 1e-13
        if not improves.any():
            break
        choice = np.where(improves, better, choice)
    values = gains.max(1) if len(states) else np.zeros(0)
    assert len(values) == 0 or np.abs(action_values(table, values).max(1) - values).max() <= EXACT
    return values


def policy_values(following: np.ndarray, reward: np.ndarray) -> np.ndarray:
    """V = r + 0.9 V[next] for one action per state, by doubling: 2 k steps are k steps, and k steps from where they end."""
    values, discount = reward.copy(), DISCOUNT
    for _ in range(DOUBLINGS):
        values = values + discount * values[following]
        following, discount = following[following], discount * discount
    return values


def action_values(table: Actions, values: np.ndarray) -> np.ndarray:
    """r_ij + 0.9 V_j, [N, A]."""
    return table.reward + DISCOUNT * values[table.successor]


def as_batch(table: Actions, sizes: np.ndarray, values: np.ndarray) -> GraphBatch:
    state, action = np.nonzero(table.valid)
    edge_index = torch.from_numpy(np.stack([state, table.successor[state, action]]))
    reward = torch.from_numpy(table.reward[state, action]).float().unsqueeze(1)
    batch = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes))
    x = torch.zeros(len(values), 1)
    return GraphBatch(x, edge_index, reward, torch.from_numpy(values).float().unsqueeze(1), batch, len(sizes))


# --- metrics ---


class Score(NamedTuple):
    """Of every graph: the mean absolute percentage error, and the share of states whose best action is found."""

    mape: Tensor  # [G]
    accuracy: Tensor  # [G]


def score(predicted: Tensor, batch: GraphBatch) -> Score:
    """Errors are divided by the true value. Any action as good as the best one counts as right."""
    predicted, true = predicted.detach().double().flatten(), batch.y.double().flatten()
    error = 100 * (predicted - true).abs() / true.abs().clamp(min=1e-12)
    right = _best(batch, true)[_greedy(batch, predicted)].double()
    return Score(_mean(batch, error), _mean(batch, right))


def floor_accuracy(batch: GraphBatch) -> Tensor:
    """The accuracy of taking the largest immediate reward, [G]: what a policy is measured from."""
    return score(torch.zeros_like(batch.y), batch).accuracy


def _mean(batch: GraphBatch, values: Tensor) -> Tensor:
    total = values.new_zeros(batch.num_graphs).index_add_(0, batch.batch, values)
    return total / batch.sizes.clamp(min=1)


def _promise(batch: GraphBatch, values: Tensor) -> tuple[Tensor, Tensor]:
    """What every edge promises, and the best of every state."""
    row, column = batch.edge_index
    promise = batch.edge_attr.double().flatten() + DISCOUNT * values[column]
    best = promise.new_full((len(values),), -torch.inf).scatter_reduce(0, row, promise, "amax")
    return promise, best


def _best(batch: GraphBatch, values: Tensor) -> Tensor:
    """Whether an edge is as good as the best one of its state, bool [E]; values are known to the precision of float32."""
    promise, best = _promise(batch, values)
    return promise >= best[batch.edge_index[0]] - 1e-5


def _greedy(batch: GraphBatch, values: Tensor) -> Tensor:
    """The first edge of every state that promises most, [N]."""
    promise, best = _promise(batch, values)
    edges = torch.arange(len(promise), device=promise.device)
    winner = edges[promise >= best[batch.edge_index[0]]]
    first = edges.new_full((len(values),), len(edges)).scatter_reduce(0, batch.edge_index[0][winner], winner, "amin")
    return first
