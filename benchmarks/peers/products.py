"""One product with the operator, y = W x + b for all heads: each function prepares and returns what is timed."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from benchmarks.workloads import Workload

Product = Callable[[Tensor], Tensor]  # x [N, H] -> y [N, H], or both [H, N] for the formats that hold one matrix per head


def index_add_product(work: Workload) -> Product:
    row, column, weight, bias = work.row, work.column, work.weight, work.bias
    return lambda x: bias.index_add(0, row, weight * x.index_select(0, column))


def scatter_product(work: Workload) -> Product:
    from torch_geometric.utils import scatter

    row, column, weight, bias, nodes = work.row, work.column, work.weight, work.bias, work.num_nodes
    return lambda x: scatter(weight * x.index_select(0, column), row, 0, nodes, "sum") + bias


def segment_product(work: Workload) -> Product:
    from torch_geometric.utils import segment

    column, weight, bias = work.column, work.weight, work.bias
    pointer = work.graph.rows.pointer.long()
    return lambda x: segment(weight * x.index_select(0, column), pointer, "sum") + bias


def mkl_product(work: Workload) -> Product:
    """torch's sparse CSR, one prebuilt matrix per head, each times its own contiguous vector: x and y are [H, N]."""
    matrices = csr_tensors(work)
    bias = work.bias.t().contiguous()
    return lambda x: torch.stack([torch.mv(matrix, x[head]) for head, matrix in enumerate(matrices)]) + bias


def scipy_product(work: Workload) -> Product:
    """scipy's CSR, one prebuilt matrix per head: x and y are [H, N]."""
    matrices = csr_arrays(work, np.float32)
    bias = work.bias.t().contiguous().numpy()

    def product(x: Tensor) -> Tensor:
        values = x.numpy()
        return torch.from_numpy(np.stack([matrix @ values[head] for head, matrix in enumerate(matrices)]) + bias)

    return product


def reference_product(work: Workload, x: Tensor) -> Tensor:
    """The same in float64, [N, H]."""
    matrices, values = csr_arrays(work, np.float64), x.double().numpy()
    product = np.stack([matrix @ values[:, head] for head, matrix in enumerate(matrices)], 1)
    return torch.from_numpy(product) + work.bias


def index_add_transpose(work: Workload) -> Product:
    row, column, weight = work.row, work.column, work.weight
    return lambda x: torch.zeros_like(x).index_add_(0, column, weight * x.index_select(0, row))


def csr_tensors(work: Workload) -> list[Tensor]:
    pointer, column, _ = work.graph.rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its CSR a beta
        shape = (work.num_nodes, work.num_nodes)
        values = work.weight.t().contiguous()
        return [torch.sparse_csr_tensor(pointer, column, head, shape) for head in values]


def csr_arrays(work: Workload, dtype: type[np.floating]) -> list:
    from scipy.sparse import csr_array

    pointer, column = (part.numpy() for part in work.graph.rows[:2])
    values = work.weight.t().contiguous().numpy().astype(dtype)
    shape = (work.num_nodes, work.num_nodes)
    # copies, because scipy adds parallel edges up in place when it feels like it
    return [csr_array((head, column, pointer), shape=shape, copy=True) for head in values]
