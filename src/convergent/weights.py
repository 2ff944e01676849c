"""Weights that contract by construction, from one logit per edge and head.

The absolute values of a row sum to at most gamma, which is below one: a number, or a tensor of shape [], [H] (one per head) or
[N, H] (one per node and head), which may be learned.
"""

from __future__ import annotations

import torch
from torch import Tensor

from convergent.errors import expect
from convergent.graph import Graph
from convergent.kernels.arguments import FLOATS, expect_matrix
from convergent.operations import at_rows, sum_edges

SQUASHES = {"sigmoid": torch.sigmoid, "clip": lambda logits: logits.clamp(0, 1)}


def degree(graph: Graph, logits: Tensor, gamma: float | Tensor = 0.5, squash: str = "sigmoid") -> Tensor:
    r"""The paper's weights (eq. 8), :math:`\gamma\, \sigma(e_{ij}) / d(i)`, where d(i) is the number of edges node i sums over.

    Args:
        graph: the structure.
        logits: :math:`e_{ij}`, one per edge and head, [E, H].
        gamma: upper bound on the row sums, above 0 and below 1; or a tensor of shape [], [H] or [N, H].
        squash: :math:`\sigma`; "sigmoid", or "clip" to [0, 1].

    Returns:
        weights [E, H], for a ``LinearMap`` or an ``ActivatedMap``.
    """
    expect(squash in SQUASHES, "squash", f"one of {tuple(SQUASHES)}", repr(squash))
    return _share(graph, logits, gamma) * SQUASHES[squash](logits)


def signed(graph: Graph, logits: Tensor, gamma: float | Tensor = 0.5) -> Tensor:
    r"""Weights of either sign, :math:`\gamma \tanh(e_{ij}) / d(i)`, where d(i) is the number of edges node i sums over.

    Args:
        graph: the structure.
        logits: :math:`e_{ij}`, one per edge and head, [E, H].
        gamma: upper bound on the absolute row sums, above 0 and below 1; or a tensor of shape [], [H] or [N, H].

    Returns:
        weights [E, H].
    """
    return _share(graph, logits, gamma) * torch.tanh(logits)


def softmax(graph: Graph, logits: Tensor, gamma: float | Tensor = 0.5) -> Tensor:
    r"""Positive weights, :math:`\gamma\, \operatorname{softmax}_j(e_{ij})`; every row with an edge sums to gamma.

    Args:
        graph: the structure.
        logits: :math:`e_{ij}`, one per edge and head, [E, H].
        gamma: the row sums, above 0 and below 1; or a tensor of shape [], [H] or [N, H].

    Returns:
        weights [E, H].
    """
    return row_softmax(graph, logits) * _per_edge(graph, gamma, logits)


def row_softmax(graph: Graph, logits: Tensor) -> Tensor:
    """A softmax over the edges that each node sums over. Rows sum to one, so these weights alone do not contract.

    Args:
        graph: the structure.
        logits: one per edge and head, [E, H].

    Returns:
        weights [E, H].
    """
    _check(graph, logits)
    top = logits.new_full((graph.num_nodes, logits.shape[1]), -torch.inf)
    top = top.scatter_reduce(0, graph.row.long().unsqueeze(1).expand_as(logits), logits.detach(), "amax")
    odds = torch.exp(logits - at_rows(graph, top))
    return odds / at_rows(graph, sum_edges(graph, odds))


def _share(graph: Graph, logits: Tensor, gamma: float | Tensor) -> Tensor:
    """gamma / d(i) of the row of every edge."""
    _check(graph, logits)
    share = graph.out_degree.to(logits.dtype).reciprocal().index_select(0, graph.row)
    return share.unsqueeze(1) * _per_edge(graph, gamma, logits)


def _per_edge(graph: Graph, gamma: float | Tensor, logits: Tensor) -> Tensor | float:
    if not isinstance(gamma, Tensor):
        number = isinstance(gamma, int | float) and not isinstance(gamma, bool)
        expect(number and 0 < gamma < 1, "gamma", "a number above 0 and below 1", repr(gamma))
        return gamma
    heads = logits.shape[1]
    shapes = ((), (heads,), (graph.num_nodes, heads))
    expect(tuple(gamma.shape) in shapes, "gamma", f"shape [], [{heads}] or [{graph.num_nodes}, {heads}]", list(gamma.shape))
    expect(gamma.dtype in FLOATS and gamma.layout is torch.strided, "gamma", "a dense floating point tensor", gamma.dtype)
    expect(
        gamma.dim() == 0 or gamma.device == logits.device,
        "gamma",
        f"a tensor on {logits.device}",
        gamma.device,
    )
    return gamma if gamma.dim() < 2 else at_rows(graph, gamma)


def _check(graph: Graph, logits: Tensor) -> None:
    expect_matrix("logits", logits, graph.num_edges, "heads", graph.device)
