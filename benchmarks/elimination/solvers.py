"""Everybody who solves (I - W) x = b in elimination's benchmark: ours, its kernels alone, and solvers without autograd."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.linear_system import Answer, LinearSystem
from convergent import Auto, LinearMap, Solution, solve
from convergent.kernels import backend
from convergent.kernels.elimination import factor

RTOL = 1e-8  # certified error of ours, relative to the largest entry of the answer
MOST = 1 << 28  # bytes of padded dense matrices that are still tried
TIGHT = Auto(rtol=RTOL, certify="tight")


def ours(system: LinearSystem, solver: Auto = TIGHT) -> Answer:
    """A certified solve and its gradient."""
    weight = system.weight.clone().requires_grad_()
    solution = solve(LinearMap(system.graph, weight, system.right[0]), solver)
    (gradient,) = torch.autograd.grad(solution.value, weight, system.adjoint[0])
    return Answer(solution.value.detach(), gradient)


def forward(system: LinearSystem, solver: Auto = TIGHT) -> Solution:
    """A certified solve; weights are a new tensor, so that their factors are made anew."""
    with torch.no_grad():
        return solve(LinearMap(system.graph, system.weight.clone(), system.right[0]), solver)


def kernels(system: LinearSystem) -> tuple[Tensor, Tensor, Tensor]:
    """Answer and certificate [2, N, H], adjoint [1, N, H] and the gradient of the weights [E, H]."""
    factors, x = factor(system.symbolic, system.weight, system.right)
    assert x is not None
    y = factors.solve_transposed(system.adjoint)
    return x, y, backend(x).edge_product(system.graph.row, system.graph.column, y[0], x[0])


def dense_bytes(system: LinearSystem) -> int:
    return 8 * system.graph.num_graphs * system.heads * system.graph.largest**2


def dense(system: LinearSystem) -> tuple[Tensor, Tensor]:
    """The same by autograd through a padded dense solve."""
    graph, size = system.graph, system.graph.largest
    start = graph.segments[:-1].long()[graph.batch]
    slot, heads = torch.arange(graph.num_nodes, device=graph.device) - start, torch.arange(system.heads, device=graph.device)
    weight = system.weight.clone().requires_grad_()
    matrix = torch.eye(size, dtype=torch.float64, device=graph.device).repeat(graph.num_graphs, system.heads, 1, 1)
    place = (graph.batch[graph.row][:, None], heads[None, :], slot[graph.row][:, None], slot[graph.column][:, None])
    matrix = matrix.index_put(place, -weight, accumulate=True)
    right = torch.zeros(graph.num_graphs, size, system.heads, 2, dtype=torch.float64, device=graph.device)
    right[graph.batch, slot] = system.right.permute(1, 2, 0)
    x = torch.linalg.solve(matrix, right.transpose(1, 2))  # [G, H, n, 2]
    x = x.transpose(1, 2)[graph.batch, slot].permute(2, 0, 1)
    (gradient,) = torch.autograd.grad(x[0], weight, system.adjoint[0])
    return x.detach(), gradient


def factors_of_scipy(system: LinearSystem, settings: Mapping[str, Any] = MappingProxyType({})) -> Tensor:
    """Answer and certificate [2, N, H] by splu as it comes or with settings, and the adjoint, which is not returned."""
    from scipy.sparse.linalg import splu

    out = np.empty(tuple(system.right.shape))
    right, adjoint = system.right.numpy(), system.adjoint.numpy()
    for graph, first in enumerate(system.graph.segments[:-1].tolist()):
        for head, matrix in enumerate(system.matrices[graph]):
            nodes = slice(first, first + matrix.shape[0])
            factors = splu(matrix, **settings)
            out[:, nodes, head] = factors.solve(right[:, nodes, head].T).T
            factors.solve(adjoint[0, nodes, head], "T")
    return torch.from_numpy(out)


def spsolve(system: LinearSystem) -> None:
    from scipy.sparse.linalg import spsolve as solve

    for graph, first in enumerate(system.graph.segments[:-1].tolist()):
        for head, matrix in enumerate(system.matrices[graph]):
            solve(matrix, system.right[0, first : first + matrix.shape[0], head].numpy())


def multigrid(system: LinearSystem) -> np.ndarray:
    """Conjugate gradients with pyamg as preconditioner, on the symmetric form: conductances, and pinned pores taken out."""
    import pyamg
    from scipy.sparse import diags_array

    ((matrix,),) = system.matrices
    assert system.scale is not None
    right, nodes = system.right[0].numpy(), matrix.shape[0]
    pinned = np.bincount(system.graph.row.numpy(), system.weight[:, 0].numpy(), nodes) == 0
    free = np.flatnonzero(~pinned)
    scale = system.scale[:, 0].numpy()
    out = right.copy()
    source = right[free, 0] - matrix[free][:, np.flatnonzero(pinned)] @ right[pinned, 0]
    inner = (diags_array(scale[free]) @ matrix[free][:, free]).tocsr()
    levels = pyamg.smoothed_aggregation_solver(inner)
    out[free, 0] = levels.solve(scale[free] * source, tol=1e-10, maxiter=500, accel="cg")
    return out
