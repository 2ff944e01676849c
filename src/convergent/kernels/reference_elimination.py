"""Elimination in plain torch, written to be read: dense, in the order of the nodes; and the pattern of factors with sets.

For devices without kernels of their own, and the truth that the kernels are tested against.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from convergent.kernels.reference import ordered

if TYPE_CHECKING:
    from convergent.kernels.elimination import Symbolic

ROUNDING = 1e-14  # a pivot that is smaller than this part of what it is the difference of is no more than rounding


class Dense(NamedTuple):
    """The factors of one graph: multipliers below the diagonal, weights among what is left above it, and the pivots."""

    panel: Tensor  # [n, n, H]
    pivots: Tensor  # [n, H]


def factor(symbolic: Symbolic, weight: Tensor, right: Tensor | None) -> tuple[list[Dense], Tensor, Tensor | None]:
    factors, fine = [], []
    for graph in range(symbolic.num_graphs):
        dense, slack = _dense(symbolic, weight, graph)
        found, ok = eliminate(dense, slack)
        factors.append(found)
        fine.append(ok)
    ok = torch.stack(fine) if fine else torch.zeros(0, weight.shape[1], dtype=torch.bool)
    ok = ok.to(weight.device)
    return factors, ok, None if right is None else solve(symbolic, factors, right, False)


def solve(symbolic: Symbolic, factors: list[Dense], right: Tensor, transposed: bool) -> Tensor:
    x = right.detach().to("cpu", torch.float64, copy=True)
    for graph, found in enumerate(factors):
        first, last = (int(symbolic.segments[g]) for g in (graph, graph + 1))
        for side in x:
            (substitute_transposed if transposed else substitute)(found, side[first:last])
    return x.to(right.device)


def _dense(symbolic: Symbolic, weight: Tensor, graph: int) -> tuple[Tensor, Tensor]:
    """W [n, n, H] and the exact slacks [n, H] of one graph, on the CPU."""
    rows, first, last = symbolic.rows, int(symbolic.segments[graph]), int(symbolic.segments[graph + 1])
    values, heads = ordered(rows, weight.cpu()).double(), weight.shape[1]
    dense, slack = torch.zeros(last - first, last - first, heads, dtype=torch.float64), torch.empty(last - first, heads).double()
    for node in range(first, last):
        begin, end = int(rows.pointer[node]), int(rows.pointer[node + 1])
        dense[node - first].index_add_(0, rows.column[begin:end].long() - first, values[begin:end])
        for head in range(heads):
            slack[node - first, head] = fsum([1.0, *(-values[begin:end, head]).tolist()])
    return dense, slack


def eliminate(weight: Tensor, slack: Tensor) -> tuple[Dense, Tensor]:
    """Grassmann, Taksar and Heyman's elimination of I - W [n, n, H], and in which heads every pivot is fine.

    Node k leaves: what it read from others is read by those who read it. In heads with negative weights the pivot is the diagonal.
    """
    panel, slack = weight.clone(), slack.clone()
    signed = (weight < 0).flatten(0, 1).any(0)
    panel.diagonal().sub_(1)  # the heads are the last dimension of this view, too
    pivots, ok = torch.empty_like(slack), torch.ones_like(signed)
    for k in range(len(panel)):
        pivot = torch.where(signed, -panel[k, k], slack[k] + panel[k, k + 1 :].sum(0))
        least = ROUNDING * torch.where(signed, 1.0, slack[k].abs())
        ok &= (pivot > least) & torch.isfinite(pivot)
        pivots[k] = pivot
        panel[k + 1 :, k] /= pivot
        panel[k + 1 :, k + 1 :] += panel[k + 1 :, k, None] * panel[None, k, k + 1 :]
        slack[k + 1 :] += panel[k + 1 :, k] * slack[k]
    return Dense(panel, pivots), ok


def substitute(factors: Dense, x: Tensor) -> None:
    """(I - W) x = b in place of b [n, H]."""
    panel, pivots = factors
    for k in range(len(x)):
        x[k + 1 :] += panel[k + 1 :, k] * x[k]
    for k in reversed(range(len(x))):
        x[k] = (x[k] + (panel[k, k + 1 :] * x[k + 1 :]).sum(0)) / pivots[k]


def substitute_transposed(factors: Dense, x: Tensor) -> None:
    """(I - W)^T y = g in place of g [n, H]."""
    panel, pivots = factors
    for k in range(len(x)):
        x[k] /= pivots[k]
        x[k + 1 :] += panel[k, k + 1 :] * x[k]
    for k in reversed(range(len(x))):
        x[k] += (panel[k + 1 :, k] * x[k + 1 :]).sum(0)


# --- patterns ---


def columns_of_factor(neighbours: list[set[int]], order: list[int]) -> list[set[int]]:
    """Of every node, in the order of elimination: the nodes that its column of L holds besides itself.

    A node that is eliminated makes its neighbours neighbours of each other.
    """
    around = [set(nodes) for nodes in neighbours]
    columns = []
    for node in order:
        columns.append(around[node])
        for other in around[node]:
            around[other] = (around[other] | around[node]) - {node, other}
    return columns


def minimum_degree(neighbours: list[set[int]]) -> list[int]:
    """The order in which the next node to go is one with the fewest neighbours left."""
    around = {node: set(nodes) for node, nodes in enumerate(neighbours)}
    order = []
    while around:
        node = min(around, key=lambda each: len(around[each]))
        order.append(node)
        gone = around.pop(node)
        for other in gone:
            around[other] = (around[other] | gone) - {node, other}
    return order
