"""Factors of I - W, kept with their weights.

Maps whose rows sum to one prove with them that they have one fixed point; solvers, gradients and certificates solve with them.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import ReferenceType, ref

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from convergent.errors import ContractionError
from convergent.graph import Graph
from convergent.kernels.elimination import Factors, Symbolic, analyse, factor

MOST = 3e10  # multiply-adds of all heads: some seconds on one core
NAMED = 5  # nodes that an error lists


class _Known(NamedTuple):
    """Factors of a weight tensor, as long as neither it nor the structure has changed."""

    version: int | None
    graph: ReferenceType[Graph]
    factors: Factors


_known = WeakTensorKeyDictionary()  # weight -> _Known


def version(tensor: Tensor) -> int | None:
    """How often a tensor was changed in place; None: it was made in inference mode, where this is not counted."""
    return None if tensor.is_inference() else tensor._version


def factors_of(graph: Graph, weight: Tensor) -> Factors:
    """The factors for weights [E, H] in the rows of a graph, made once."""
    if not known(graph, weight):
        factors, _ = factor(symbolic_of(graph), weight)
        _known[weight] = _Known(version(weight), ref(graph), factors)
    return _known[weight].factors


def known(graph: Graph, weight: Tensor) -> bool:
    """Whether the factors for these weights have been made."""
    found = _known.get(weight)
    return found is not None and found.graph() is graph and found.version == version(weight)


def symbolic_of(graph: Graph) -> Symbolic:
    """The order of elimination and the fill of a structure, found once."""
    return graph.cached("symbolic", lambda: analyse(graph.rows, graph.segments, MOST))


def affordable(graph: Graph, heads: int) -> bool:
    """Whether factors do not fill up too much. To find out that those of a large graph do costs a small part of making them."""
    return float(symbolic_of(graph).flops.sum()) * heads <= MOST


def heads_at_once(graph: Graph) -> int:
    """For how many heads factors are affordable, 1 or more."""
    work = float(symbolic_of(graph).flops.sum())
    return max(1, int(min(MOST / max(work, 1.0), MOST)))


def expect_losses(graph: Graph, weight: Tensor) -> bool:
    """Whether x = W x + b has one solution though rows of |W| sum to one or more: from every node something is lost.

    All pivots of I - |W| are positive exactly where some scaling of |W| has rows that sum to less than one.

    Returns:
        False where factors fill up too much to find out.

    Raises:
        ContractionError: names the nodes from which nothing is lost.
    """
    if not affordable(graph, 1):
        return False
    magnitude = weight if bool((weight >= 0).all()) else weight.abs()
    heads, together = weight.shape[1], heads_at_once(graph)
    for first in range(0, heads, together):
        some = magnitude if together >= heads else magnitude[:, first : first + together].contiguous()
        factors = factors_of(graph, some)
        if not bool(factors.ok.all()):
            raise _no_loss(factors, first)
    return True


def _no_loss(factors: Factors, first: int) -> ContractionError:
    """The error for factors of heads from number ``first`` on that do not exist."""
    where, head = (int(index) for index in (~factors.ok).nonzero()[0])
    nodes = factors.closed(where, head).tolist()
    if not nodes:
        words = "rows that sum to more than one outweigh those that sum to less"
    else:
        names = ", ".join(map(str, nodes[:NAMED])) + (", ..." if len(nodes) > NAMED else "")
        words = f"no row that sums to less than one is reached from {len(nodes)} of its nodes ({names})"
    return ContractionError(
        f"weight: expected rows that lose something from every node, but in graph {where}, head {first + head}, {words}"
    )
