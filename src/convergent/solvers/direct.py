"""Direct solution: a dense LU of every small graph, a sparse LU of a large one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from convergent.kernels import backend
from convergent.maps import FixedPointMap, LinearMap
from convergent.solvers.solver import Burst, Solver

DENSE_NODES = 128  # above this a dense LU costs more than the sparse one


@dataclass(frozen=True)
class Direct(Solver):
    """Factorises I - W of every graph and head: dense up to 128 nodes, sparse above (SuperLU, in float64, on the CPU)."""

    only_linear = True

    def burst(self, fixed: FixedPointMap, start: Tensor | None, goal: Tensor, limit: int) -> Burst:
        assert isinstance(fixed, LinearMap)
        assert start is None
        graph = fixed.graph
        if graph.largest <= DENSE_NODES:
            x = backend(fixed.bias).lu_solve(graph.rows, graph.segments, fixed.weight.to(fixed.dtype), fixed.bias)
        else:
            x = _sparse_lu(fixed)
        return Burst(x, torch.isfinite(goal).any(1).long())


def _sparse_lu(fixed: LinearMap) -> Tensor:
    """One factorisation per head; scipy is imported here because it is slow to import."""
    from scipy.sparse import csc_array, identity
    from scipy.sparse.linalg import splu

    graph, size = fixed.graph, fixed.graph.num_nodes
    row, column = graph.row.cpu().numpy(), graph.column.cpu().numpy()
    weight = fixed.weight.double().cpu().numpy()
    bias = fixed.bias.double().cpu().numpy()
    answer = numpy.empty_like(bias)
    for head in range(fixed.heads):
        operator = csc_array((weight[:, head], (row, column)), shape=(size, size))  # parallel edges add
        answer[:, head] = splu((identity(size, format="csc") - operator).tocsc()).solve(bias[:, head])
    return torch.from_numpy(answer).to(fixed.device)
