"""What elimination and iterations would take on a CPU, estimated before either is begun; ``Auto`` chooses by it.

Iterations depend on how far the nodes of a graph are apart: a deflated step passes on what it knows to the neighbours, so that the
slow part of the error needs about the square of that distance, and never more than the contraction calls for. Elimination depends
on the separators of the graph. A graph whose nodes are far apart has small ones: there elimination wins. One whose nodes are close
has large ones, and there a few deflated steps win.

Times are in nanoseconds of the machine on which they were measured, and only compared with each other.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from torch import Tensor

from convergent.graph import Graph
from convergent.kernels.elimination import Symbolic

SOLVES = 20  # that a structure serves: each bears this share of the symbolic step
DIGITS = 14.0  # natural logarithm of what a solve takes off the residual: six decimal digits

# elimination: a solve, and per node; then for each head per node, per number in the factors, per multiply-add
SETUP, NODE, PER_NODE, PER_NUMBER, PER_UPDATE = 0.5e6, 170.0, 20.0, 3.0, 0.05
# its symbolic step, per edge; nested dissection sets in with large separators
SYMBOLIC, DISSECTION, DISSECTED = 200.0, 1600.0, 2e8
# numbers in the factors per node of a tree and of a mesh; multiply-adds per node of a tree, and of a mesh per cubed separator
FILL_TREE, FILL_MESH, UPDATES = 15.0, 70.0, 145.0

# a step: per edge, and per edge and head where the weights lie in cache and where they do not
STEP, IN_CACHE, FROM_MEMORY, CACHED = 0.5, 0.2, 0.8, 500_000
MIXING, DISTANCE = 30.0, 1.5  # steps: at least, and per square of the distance
TRIAL, TRIAL_SMALL = (16, 130), (192, 192)  # steps after which another method begins, and up to which none does
# multigrid: a solve, then per edge, and per edge and head; and how much more for every digit of 1 / (1 - c)
CYCLES, CYCLE, CYCLE_HEAD, CYCLE_DIGIT = 10e6, 200.0, 90.0, 0.1
# weights that spread over decades: what their logarithms deviate by, how many are looked at, how much longer multigrid takes
UNEVEN, SAMPLE, UNEVEN_CYCLES = 1.0, 256, 10.0


class Shape(NamedTuple):
    """What is easily known of the structure of a batch of graphs."""

    depth: float  # steps between two nodes, in the graph where they are most; infinite for trees
    updates: float  # multiply-adds of an elimination for one head, roughly
    fill: float  # numbers in its factors, roughly


def shape_of(graph: Graph) -> Shape:
    """Found once per structure, in time linear in nodes and edges."""
    return graph.cached("shape", lambda: _shape(graph))


def _shape(graph: Graph) -> Shape:
    from convergent.kernels.cpu_depth import depths

    count, nodes = graph.num_graphs, graph.num_nodes
    depth, width, cycles = np.zeros(count, np.int64), np.zeros(count), np.zeros(count, np.bool_)
    pointer, column, _ = graph.rows
    depths(graph.segments.numpy(), pointer.numpy(), column.numpy(), depth, width, cycles)
    if not cycles.any():  # elimination is cheap however close nodes are: a star, say
        return Shape(float("inf"), UPDATES * nodes, FILL_TREE * nodes)
    return Shape(float(depth.max()), UPDATES * (float(width.sum()) + nodes), FILL_MESH * nodes)


def few_steps(graph: Graph, heads: int, contraction: float) -> bool:
    """Whether the steps that the contraction calls for are done before an elimination has begun."""
    most = MIXING + DIGITS / max(1 - contraction, 1e-16) / 2
    return most * graph.num_edges * (STEP + FROM_MEMORY * heads) <= SETUP + NODE * graph.num_nodes


def elimination(graph: Graph, heads: int, symbolic: Symbolic | None = None) -> float:
    """The time of a solve by elimination; roughly, from the shape alone, where the symbolic step has not been taken."""
    shape = shape_of(graph)
    updates, fill = (shape.updates, shape.fill) if symbolic is None else (symbolic.flops.sum(), symbolic.fill.sum())
    once = (DISSECTION if updates > DISSECTED else SYMBOLIC) * graph.num_edges / SOLVES
    by_head = PER_NODE * graph.num_nodes + PER_NUMBER * fill + PER_UPDATE * updates
    return SETUP + once + NODE * graph.num_nodes + heads * float(by_head)


def analysis(graph: Graph) -> float:
    """The time of the symbolic step of an elimination."""
    return DISSECTION * graph.num_edges


def uneven(weight: Tensor) -> bool:
    """Whether weights [E, H] spread over decades, by a sample of them.

    Then a node may hang on few of its neighbours, so that nodes that are close do not know of each other.
    """
    sample = np.abs(weight.detach().numpy()[:: max(len(weight) // SAMPLE, 1), 0])
    logarithm = np.log10(sample[sample > 0], dtype=np.float64)
    count = max(len(logarithm), 1)
    return float(logarithm @ logarithm) / count - (float(logarithm.sum()) / count) ** 2 > UNEVEN**2


def iterations(graph: Graph, heads: int, contraction: float, slow: bool = False, spread: bool = False) -> float:
    """The time of deflated steps, or of a trial of them and of multigrid where too many would be needed.

    Args:
        graph: the structure.
        heads: right-hand sides, each with weights of its own.
        contraction: the largest contraction factor.
        slow: deflated steps are known to need too many.
        spread: the weights are ``uneven``.
    """
    edges, by_head = graph.num_edges, IN_CACHE if graph.num_edges * heads <= CACHED else FROM_MEMORY
    step = edges * (STEP + by_head * heads)
    apart = max(1 - contraction, 1e-16)
    plain, mixing = DIGITS / apart / 2, DISTANCE * shape_of(graph).depth ** 2
    steps = MIXING + (plain if spread else min(plain, mixing))
    trial, most = TRIAL_SMALL if graph.small is None else TRIAL
    if steps <= most and not slow:
        return steps * step
    cycles = (CYCLES + edges * (CYCLE + CYCLE_HEAD * heads)) * (1 - CYCLE_DIGIT * math.log10(apart))
    return trial * step + cycles * (UNEVEN_CYCLES if spread else 1.0)
