"""A new kind of map in one file: max-plus, the map of optimal stopping and of value iteration.

    x_i = max( b_i,  max over the edges e: i -> j of  c_e + g x_j )

A node either stops, for b_i, or moves along one of its edges, for c_e and what the next node is worth, discounted by g.
The map contracts by g in the max norm, because a maximum moves no further than the argument that moves most.
Solvers, certificates and gradients come with the base class.

    python examples/custom_map.py
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from convergent import Auto, FixedPointMap, Graph, LinearMap, solve
from convergent.errors import expect
from convergent.graph import Subset
from convergent.maps.base import checked, finite
from convergent.solvers import Anderson, Picard, Solver, suggest


class MaxPlusMap(FixedPointMap):
    r"""The map :math:`T(x)_{ih} = \max(b_{ih}, \max_{e: i \to j} c_{eh} + g x_{jh})`.

    Args:
        graph: the structure.
        reward: what moving along an edge brings, [E, H].
        bias: what stopping at a node brings, [N, H].
        discount: g, above 0 and below 1.
    """

    reward: Tensor  # [E, H]
    bias: Tensor  # [N, H]
    discount: float

    def __init__(self, graph: Graph, reward: Tensor, bias: Tensor, discount: float):
        self.graph, self.norm = graph, "max"
        self.reward = checked("reward", reward, graph.num_edges, None, None, graph.device)
        self.discount = float(torch.tensor(discount, dtype=self.reward.dtype))  # as T, which is computed in this dtype, has it
        expect(0 < self.discount < 1, "discount", f"a number above 0 and below 1 in {self.reward.dtype}", repr(discount))
        self.bias = checked("bias", bias, graph.num_nodes, self.reward.shape[1], self.reward, graph.device)
        finite("reward", self.reward)
        finite("bias", self.bias)
        shape = (graph.num_graphs, self.heads)
        self.contraction = torch.full(shape, self.discount, dtype=torch.float64, device=graph.device)

    # --- what it is made of ---

    def parameters(self) -> tuple[Tensor, ...]:
        return self.reward, self.bias

    def settings(self) -> str:
        return repr(self.discount)

    def _restore(self, parameters: list[Tensor], settings: str) -> None:
        self.reward, self.bias = parameters
        self.discount = float(settings)

    def restrict(self, subset: Subset, keep: Tensor) -> Self:
        parts = [self.reward[subset.edges], self.bias[subset.nodes]]
        return type(self).restore(subset.graph, parts, self.contraction[keep], self.norm, self.settings())

    # --- the map ---

    def choice(self, x: Tensor) -> Tensor:
        """The edge each node moves along, [N, H]; the number of edges where it stops. Of equals the first is taken."""
        row = self.graph.row.long().unsqueeze(1).expand_as(self.reward)
        with torch.no_grad():
            offer = self.reward + self.discount * x[self.graph.column]  # [E, H]
            best = self.bias.to(offer.dtype).scatter_reduce(0, row, offer, "amax")
            edge = torch.arange(self.graph.num_edges, device=x.device).unsqueeze(1).expand_as(row)
            edge = torch.where((offer == best.gather(0, row)) & (offer > self.bias.gather(0, row)), edge, self.graph.num_edges)
            return torch.full_like(best, self.graph.num_edges, dtype=torch.long).scatter_reduce(0, row, edge, "amin")

    def _chosen(self, choice: Tensor, per_edge: Tensor, per_node: Tensor) -> Tensor:
        """[N, H]: the number of the chosen edge where a node moves, its own where it stops."""
        padded = torch.cat([per_edge, per_edge.new_zeros(1, per_edge.shape[1])])
        return torch.where(choice < self.graph.num_edges, padded.gather(0, choice), per_node)

    def __call__(self, x: Tensor) -> Tensor:
        offer = self.reward + self.discount * x.index_select(0, self.graph.column)
        return self._chosen(self.choice(x), offer, self.bias)

    def at_zero(self) -> Tensor:
        return self(torch.zeros_like(self.bias))

    def defect(self, x: Tensor) -> Tensor:
        wide = x.double()
        return self.widened()(wide) - wide

    def sweep(self, x: Tensor, goal: Tensor, limit: int) -> tuple[Tensor, Tensor]:
        steps = torch.zeros(len(goal), dtype=torch.long, device=x.device)
        live = torch.isfinite(goal).any(1)  # [G]
        for _ in range(limit):
            if not live.any():
                break
            moved = self(x)
            length = self.size(moved - x)  # the residual after this step is at most the contraction times its length
            floor = 2 * torch.finfo(x.dtype).eps * self.size(moved)
            x = torch.where(self.graph.spread(live.unsqueeze(1)), moved, x)
            steps += live
            live = live & ~((self.contraction * length <= goal) | (length <= floor)).all(1)
        return x, steps

    # --- its derivatives ---

    def linearize(self, x: Tensor) -> LinearMap:
        edge = torch.arange(self.graph.num_edges, device=x.device).unsqueeze(1)
        taken = self.choice(x)[self.graph.row] == edge  # [E, H]
        parts = [self.discount * taken.to(self.reward.dtype), torch.zeros_like(self.bias)]
        return LinearMap.restore(self.graph, parts, self.contraction, self.norm)

    def pullback(self, x: Tensor, cotangent: Tensor) -> tuple[Tensor, ...]:
        choice = self.choice(x)
        edge = torch.arange(self.graph.num_edges, device=x.device).unsqueeze(1)
        taken = choice[self.graph.row] == edge
        to_reward = torch.where(taken, cotangent.index_select(0, self.graph.row), 0.0)
        return to_reward, torch.where(choice < self.graph.num_edges, 0.0, cotangent)

    def pushforward(self, x: Tensor, tangents: tuple[Tensor | None, ...]) -> Tensor:
        reward, bias = tangents
        per_edge = torch.zeros_like(self.reward) if reward is None else reward
        return self._chosen(self.choice(x), per_edge, torch.zeros_like(self.bias) if bias is None else bias)


@suggest.register
def _(fixed: MaxPlusMap, picard_steps: float) -> list[Solver]:
    """What Auto tries on this kind of map."""
    return [Picard()] if picard_steps <= 100 else [Anderson(), Picard()]


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    nodes, edges = 2000, 10_000
    graph = Graph(torch.randint(nodes, (2, edges), generator=generator), num_nodes=nodes)
    reward = torch.rand(edges, 1, generator=generator, dtype=torch.float64).requires_grad_()
    bias = torch.zeros(nodes, 1, dtype=torch.float64)
    bias[::50] = 12.0  # a few nodes are worth stopping at
    fixed = MaxPlusMap(graph, reward, bias, discount=0.9)
    solution = solve(fixed, Auto(tol=1e-8))
    print(fixed)
    print(solution)

    solution.value.mean().backward()
    used = int((reward.grad != 0).sum())
    stopped = int((fixed.choice(solution.value) == edges).sum())
    print(f"{used} of {edges} edges carry a gradient; {stopped} nodes stop")

    probe = int(reward.grad.argmax())
    ends = []
    for side in (1e-5, -1e-5):
        moved = reward.detach().clone()
        moved[probe] += side
        ends.append(float(solve(MaxPlusMap(graph, moved, bias, 0.9), Auto(tol=1e-10)).value.mean()))
    finite_difference = (ends[0] - ends[1]) / 2e-5
    print(f"edge {probe}: gradient {float(reward.grad[probe]):.8e}, by finite differences {finite_difference:.8e}")


if __name__ == "__main__":
    main()
