"""A kind of map the engine has never seen: max-plus, x_i = max over the edges i -> j of (g x_j + c_ij).

It shows that a new kind is one class: it is solved, certified and differentiated without a word elsewhere.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from convergent import Anderson, Auto, BiCGStab, FixedPointMap, Graph, InputError, LinearMap, Picard, solve
from convergent.operations import propagate
from problems import DOUBLE


class MaxPlusMap(FixedPointMap):
    """Every node needs at least one edge."""

    reward: Tensor  # [E, H]
    discount: float

    def __init__(self, graph: Graph, reward: Tensor, discount: float):
        self.graph, self.norm, self.reward, self.discount = graph, "max", reward, discount
        self.contraction = torch.full((graph.num_graphs, reward.shape[1]), discount, dtype=DOUBLE)

    def parameters(self):
        return (self.reward,)

    def settings(self):
        return repr(self.discount)

    def _restore(self, parameters, settings):
        (self.reward,), self.discount = parameters, float(settings)

    def restrict(self, subset, keep):
        parts = (subset.graph, [self.reward[subset.edges]], self.contraction[keep], self.norm, self.settings())
        return type(self).restore(*parts)

    def _offers(self, x):
        return self.discount * x.index_select(0, self.graph.column) + self.reward

    def _chosen(self, x):
        """One for the edge that attains the maximum of its row, else zero: [E, H]."""
        offers = self._offers(x).detach()
        return (offers == self._best(offers).index_select(0, self.graph.row)).to(x.dtype)

    def _best(self, offers):
        index = self.graph.row.long().unsqueeze(1).expand_as(offers)
        start = offers.new_full((self.graph.num_nodes, offers.shape[1]), -torch.inf)
        return start.scatter_reduce(0, index, offers, "amax")

    def __call__(self, x):
        return propagate(self.graph, self._chosen(x) * self._offers(x), torch.ones_like(x))

    def at_zero(self):
        return self(self.reward.new_zeros(self.graph.num_nodes, self.heads))

    def defect(self, x):
        wide = self.widened()
        return wide(x.double()) - x.double()

    def sweep(self, x, goal, limit):
        steps = torch.zeros(self.graph.num_graphs, dtype=torch.long)
        for _ in range(limit):
            moved = self(x)
            step = self.size(moved - x)
            x, steps = moved, steps + 1
            if (self.contraction * step <= goal).all():
                break
        return x, steps

    def linearize(self, x):
        weight = self.discount * self._chosen(x)
        return LinearMap.restore(self.graph, [weight, torch.zeros_like(x)], self.contraction, self.norm)

    def dominating(self):
        ones = self.reward.new_ones(self.graph.num_nodes, self.heads)
        weight = self.discount / self.graph.out_degree.to(DOUBLE)[self.graph.row].unsqueeze(1).expand_as(self.reward)
        return LinearMap.restore(self.graph, [weight.to(self.dtype), ones], self.contraction, self.norm)

    def pullback(self, x, cotangent):
        return (self._chosen(x) * cotangent.index_select(0, self.graph.row),)

    def pushforward(self, x, tangents):
        return propagate(self.graph, self._chosen(x) * tangents[0], torch.ones_like(x))


def problem(seed: int = 0) -> tuple[Graph, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    states, actions = 12, 4
    successors = torch.stack([torch.randperm(states, generator=draw)[:actions] for _ in range(states)])
    index = torch.stack([torch.arange(states).repeat_interleave(actions), successors.flatten()])
    return Graph(index, states), 2 * torch.rand(states * actions, 2, generator=draw, dtype=DOUBLE) - 1


@pytest.mark.parametrize("solver", [Picard(tol=1e-9), Anderson(tol=1e-9), Auto(tol=1e-9)])
def test_a_new_kind_is_solved_and_certified(solver) -> None:
    graph, reward = problem()
    solution = solve(MaxPlusMap(graph, reward, 0.9), solver)
    value = torch.zeros(12, 2, dtype=DOUBLE)
    for _ in range(400):  # Bellman's backup, written as plainly as it can be
        offers = reward + 0.9 * value[graph.column.long()]
        value = offers.view(12, 4, 2).amax(1)
    assert (solution.value - value).abs().max() <= solution.error_bound.max() <= 1e-9


def test_a_new_kind_is_differentiated() -> None:
    graph, reward = problem()

    def value(reward):
        return solve(MaxPlusMap(graph, reward, 0.9), Picard(tol=1e-12)).value.sin()

    assert gradcheck(value, reward[:, :1].clone().requires_grad_(), check_forward_ad=True, fast_mode=True)
    assert gradgradcheck(value, reward[:, :1].clone().requires_grad_(), fast_mode=True)


def test_a_linear_method_refuses_it() -> None:
    graph, reward = problem()
    with pytest.raises(InputError, match=r"solver: expected a method for non-linear maps .* with MaxPlusMap, but got BiCGStab"):
        solve(MaxPlusMap(graph, reward, 0.9), BiCGStab())


def test_it_needs_a_point_to_be_transposed_at() -> None:
    graph, reward = problem()
    with pytest.raises(InputError, match="at: expected the point at which MaxPlusMap is linearised"):
        MaxPlusMap(graph, reward, 0.9).transpose()
