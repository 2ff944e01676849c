"""Solvers of (I - W) x = b for one head. All work in float64: in float32 none reaches the error that is asked for.

A solver is called with a tolerance in the 2-norm of its residual (or step) and a budget of steps, and returns x [N].
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from benchmarks.peers import torchdeq_solver
from benchmarks.peers.products import csr_arrays
from benchmarks.workloads import Workload


@dataclass(frozen=True)
class System:
    """The matrix I - W of one head and the right-hand side, as scipy and torch want them."""

    work: Workload  # of one head

    @cached_property
    def operator(self) -> Any:  # csr_array
        return csr_arrays(self.work, np.float64)[0]

    @cached_property
    def matrix(self) -> Any:  # csr_array
        from scipy.sparse import eye_array

        return (eye_array(self.work.num_nodes, format="csr") - self.operator).tocsr()

    @cached_property
    def right(self) -> np.ndarray:  # [N]
        return self.work.bias[:, 0].double().numpy()

    @cached_property
    def contraction(self) -> float:
        return float(abs(self.operator).sum(1).max())

    def error_bound(self, x: np.ndarray) -> float:
        """No entry of x is further than this from the solution: max-norm residual in float64 over 1 - contraction."""
        return float(np.abs(self.right - self.matrix @ x).max()) / (1 - self.contraction)

    @cached_property
    def tensor(self) -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls its CSR a beta
            pointer, column = torch.from_numpy(self.matrix.indptr), torch.from_numpy(self.matrix.indices)
            return torch.sparse_csr_tensor(pointer, column, torch.from_numpy(self.matrix.data), self.matrix.shape)


Solve = Callable[[float, int], np.ndarray]
RIDGE = 1e-20  # of TorchDEQ's Anderson, below the square of any residual here: with its own it does not get there


@dataclass
class Peer:
    """A solver with its set-up, which is part of its time because weights change from call to call."""

    package: str
    make: Callable[[System], Solve]
    iterative: bool = True
    fills: bool = False  # factors or coarse matrices of a random graph fill in: it sits those out
    setup_seconds: float = 0.0

    def solve(self, system: System, tol: float, steps: int) -> np.ndarray:
        start = time.perf_counter()
        solve = self.make(system)
        self.setup_seconds = time.perf_counter() - start
        return solve(tol, steps)


def torchdeq_fixed_point(name: str, ridge: float | None = None) -> Callable[[System], Solve]:
    def make(system: System) -> Solve:
        import torchdeq

        row, column = system.work.row, system.work.column
        weight, bias = system.work.weight[:, 0].double(), system.work.bias[:, 0].double()

        def operator(z: torch.Tensor) -> torch.Tensor:  # [1, N]: Anderson's coefficients are those of the whole system
            return bias.index_add(0, row, weight * z[0].index_select(0, column)).unsqueeze(0)

        def solve(tol: float, steps: int) -> np.ndarray:
            deq = torchdeq.get_deq(f_solver=torchdeq_solver(name, ridge), f_max_iter=steps, f_tol=tol, f_stop_mode="abs").eval()
            with torch.no_grad():
                return deq(operator, torch.zeros_like(bias).unsqueeze(0))[0][-1][0].numpy()

        return solve

    return make


def scipy_bicgstab(system: System) -> Solve:
    from scipy.sparse.linalg import bicgstab

    return lambda tol, steps: bicgstab(system.matrix, system.right, rtol=0.0, atol=tol, maxiter=steps)[0]


def scipy_spsolve(system: System) -> Solve:
    from scipy.sparse.linalg import spsolve

    return lambda tol, steps: spsolve(system.matrix.tocsc(), system.right)


def torchsparsegradutils_bicgstab(system: System) -> Solve:
    """Its ``sparse_generic_solve`` with the one iterative method it has for unsymmetric matrices."""
    from torchsparsegradutils import sparse_generic_solve
    from torchsparsegradutils.utils import BICGSTABSettings, bicgstab

    right = torch.from_numpy(system.right)

    def solve(tol: float, steps: int) -> np.ndarray:
        settings = BICGSTABSettings(matvec_max=2 * steps, abstol=tol, reltol=0.0)
        with torch.no_grad():
            return sparse_generic_solve(system.tensor, right, solve=bicgstab, settings=settings).numpy()

    return solve


def pyamg_solver(kind: str) -> Callable[[System], Solve]:
    """A hierarchy of this very matrix ("smoothed aggregation" or "ruge-stuben") in front of BiCGStab."""

    def make(system: System) -> Solve:
        import pyamg
        from scipy.sparse import csr_matrix

        matrix = csr_matrix(system.matrix)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if kind == "ruge-stuben":
                hierarchy = pyamg.ruge_stuben_solver(matrix)
            else:
                hierarchy = pyamg.smoothed_aggregation_solver(matrix, symmetry="nonsymmetric")
        size = float(np.linalg.norm(system.right))

        def solve(tol: float, steps: int) -> np.ndarray:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return hierarchy.solve(system.right, tol=tol / size, maxiter=steps, accel="bicgstab")

        return solve

    return make


PEERS = {
    "TorchDEQ fixed point": Peer("torchdeq", torchdeq_fixed_point("fixed_point_iter")),
    "TorchDEQ Anderson": Peer("torchdeq", torchdeq_fixed_point("anderson", RIDGE)),
    "torchsparsegradutils BiCGStab": Peer("torchsparsegradutils", torchsparsegradutils_bicgstab),
    "scipy BiCGStab": Peer("scipy", scipy_bicgstab),
    "scipy spsolve": Peer("scipy", scipy_spsolve, iterative=False, fills=True),
    "pyamg smoothed aggregation": Peer("pyamg", pyamg_solver("smoothed aggregation"), fills=True),
    "pyamg Ruge-Stueben": Peer("pyamg", pyamg_solver("ruge-stuben"), fills=True),
}
