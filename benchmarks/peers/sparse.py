"""Differentiable sparse solvers of other packages: (I - W) x = b for all heads, and the gradient of the weights.

What depends on the structure alone is given to them ready-made. Direct solvers take the heads one by one, each with all graphs
as blocks of one matrix, which is faster here than graph by graph. Krylov methods take all heads as blocks as well: conjugate
gradients with a Jacobi preconditioner where the system can be made symmetric, BiCGStab otherwise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.linear_system import Answer, Compressed, LinearSystem

Run = Callable[[LinearSystem, float], Answer]  # the number is a tolerance, which direct solvers do not need


@dataclass(frozen=True)
class Peer:
    package: str
    run: Run
    iterative: bool = False

    def solve(self, system: LinearSystem, tol: float) -> Answer:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls its CSR a beta, and asks whether to check it
            return self.run(system, tol)

    def method(self, system: LinearSystem) -> str:
        if not self.iterative:
            return "factors"
        return "CG on the symmetric form" if system.form.symmetric else "BiCGStab"


def torch_sla_lu(system: LinearSystem, tol: float) -> Answer:
    """The solver its documentation recommends on the CPU, which is SuperLU."""
    from torch_sla import spsolve

    form, weight = system.form, _leaf(system)
    shape = (form.size, form.size)
    right, values = form.right(weight, system.right[0]), form.values(weight)
    lu = partial(spsolve, backend="scipy", method="lu")
    x = [lu(entries, form.rows, form.columns, shape, b) for entries, b in zip(values, right, strict=True)]
    return _answer(torch.stack(x), weight, system)


def torch_sla_krylov(system: LinearSystem, tol: float) -> Answer:
    from torch_sla import spsolve

    form, weight = system.form, _leaf(system)
    size = form.size * form.heads
    right = form.right(weight, system.right[0]).reshape(-1)
    entries = (form.values(weight).reshape(-1), *form.blocks, (size, size))
    method = "cg" if form.symmetric else "bicgstab"
    norm = right.detach().norm()  # its backward divides by it as well, so that one absolute tolerance does for both
    x = norm * spsolve(*entries, right / norm, backend="pytorch", method=method, atol=tol, maxiter=STEPS[method])
    return _answer(x.view(form.heads, form.size), weight, system)


def torchsparsegradutils_krylov(system: LinearSystem, tol: float) -> Answer:
    form, weight = system.form, _leaf(system)
    right, values = form.right(weight, system.right[0]), form.values(weight)
    given = Given.of(form.compressed_blocks, values.reshape(-1), right.reshape(-1))
    x = _krylov(given, None if form.scale is None else (1 / form.scale).t().reshape(-1, 1), tol)
    return _passed_on(x.view(form.heads, form.size), [given], weight, system)


def torchsparsegradutils_krylov_by_head(system: LinearSystem, tol: float) -> Answer:
    """Slower on small systems, but its BiCGStab gets further."""
    weight = _leaf(system)
    given, form = _by_head(system, weight), system.form
    inverse = [None] * form.heads if form.scale is None else (1 / form.scale).t().unsqueeze(2).unbind()
    x = [_krylov(each, diagonal, tol) for each, diagonal in zip(given, inverse, strict=True)]
    return _passed_on(torch.stack(x), given, weight, system)


def _krylov(given: Given, inverse: Tensor | None, tol: float) -> Tensor:
    """Conjugate gradients with the ``inverse`` diagonal [size, 1] of a symmetric matrix; BiCGStab without one."""
    from torchsparsegradutils import sparse_generic_solve
    from torchsparsegradutils.utils import BICGSTABSettings, bicgstab, linear_cg
    from torchsparsegradutils.utils.linear_cg import LinearCGSettings

    if inverse is None:
        forward = partial(bicgstab, settings=BICGSTABSettings(matvec_max=2 * STEPS["bicgstab"], abstol=0.0, reltol=tol))
    else:
        settings = LinearCGSettings(max_cg_iterations=STEPS["cg"], cg_tolerance=tol)
        forward = partial(linear_cg, settings=settings, preconditioner=lambda residual: inverse * residual)

    def transposed(matrix: Tensor, right: Tensor) -> Tensor:
        """Also for conjugate gradients: matrices are symmetric but for rounding, which shows where rows almost sum to one."""
        return forward(matrix.t().to_sparse_csr(), right)

    return sparse_generic_solve(given.matrix, given.right, solve=forward, transpose_solve=transposed)


def torchsparsegradutils_splu(system: LinearSystem, tol: float) -> Answer:
    """Its gradient around scipy's splu, in the ordering that is fastest here; both passes share the factors."""
    from torchsparsegradutils import sparse_generic_solve

    weight = _leaf(system)
    given, factors = _by_head(system, weight), [Factors() for _ in range(system.heads)]
    x = [
        sparse_generic_solve(each.matrix, each.right, solve=mine.solve, transpose_solve=mine.solve_transposed)
        for each, mine in zip(given, factors, strict=True)
    ]
    return _passed_on(torch.stack(x), given, weight, system)


class Given(NamedTuple):
    """A system as torchsparsegradutils gets it: leaves in CSR, made of entries and a right-hand side that depend on the weights.

    Gradients are passed on from there by hand: torch's own, of a CSR tensor to its values, goes through a dense matrix.
    """

    matrix: Tensor
    right: Tensor
    sources: tuple[Tensor, Tensor]  # what the leaves are made of

    @staticmethod
    def of(place: Compressed, values: Tensor, right: Tensor) -> Given:
        merged = place.merged(values)
        leaves = place.matrix(merged.detach()), right.detach().contiguous()
        return Given(*(leaf.requires_grad_() for leaf in leaves), (merged, right))


def _by_head(system: LinearSystem, weight: Tensor) -> list[Given]:
    form = system.form
    parts = zip(form.values(weight), form.right(weight, system.right[0]), strict=True)
    return [Given.of(form.compressed, values, right) for values, right in parts]


def _passed_on(x: Tensor, given: list[Given], weight: Tensor, system: LinearSystem) -> Answer:
    """From answers [H, N]."""
    leaves = [leaf for each in given for leaf in (each.matrix, each.right)]
    found = torch.autograd.grad(x, leaves, system.adjoint[0].t())
    dense = [part.values() if part.layout == torch.sparse_csr else part for part in found]
    sources = [source for each in given for source in each.sources]
    used = [pair for pair in zip(sources, dense, strict=True) if pair[0].requires_grad]
    (gradient,) = torch.autograd.grad([source for source, _ in used], weight, [part for _, part in used])
    return Answer(x.detach().t(), gradient)


# of splu, where patterns are symmetric and diagonals dominate their rows: less fill than as it comes
MINIMUM_DEGREE = MappingProxyType({"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}})


class Factors:
    """splu as torchsparsegradutils wants a solver: a function of the matrix and the right-hand side."""

    def __init__(self) -> None:
        self.factors: Any = None

    def solve(self, matrix: Tensor, right: Tensor) -> Tensor:
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import splu

        parts = (matrix.values(), matrix.col_indices().int(), matrix.crow_indices().int())
        transposed = csc_array(tuple(part.numpy() for part in parts), shape=tuple(matrix.shape))
        self.factors = splu(transposed, **MINIMUM_DEGREE)
        return torch.from_numpy(self.factors.solve(np.ascontiguousarray(right.numpy()), "T"))

    def solve_transposed(self, matrix: Tensor, right: Tensor) -> Tensor:
        return torch.from_numpy(self.factors.solve(np.ascontiguousarray(right.numpy())))


STEPS = {"cg": 30_000, "bicgstab": 3_000}  # at most; BiCGStab breaks down rather than converge late
PEERS = {
    "torch-sla, LU": Peer("torch_sla", torch_sla_lu),
    "torch-sla, Krylov": Peer("torch_sla", torch_sla_krylov, iterative=True),
    "torchsparsegradutils, splu": Peer("torchsparsegradutils", torchsparsegradutils_splu),
    "torchsparsegradutils, Krylov": Peer("torchsparsegradutils", torchsparsegradutils_krylov, iterative=True),
    "torchsparsegradutils, Krylov by head": Peer("torchsparsegradutils", torchsparsegradutils_krylov_by_head, iterative=True),
}


def _leaf(system: LinearSystem) -> Tensor:
    return system.weight.clone().requires_grad_()


def _answer(x: Tensor, weight: Tensor, system: LinearSystem) -> Answer:
    """From answers [H, N]."""
    (gradient,) = torch.autograd.grad(x, weight, system.adjoint[0].t())
    return Answer(x.detach().t(), gradient)
