"""What the answers are compared with: solutions refined in extended precision."""

from __future__ import annotations

from math import fsum

import numpy as np
import torch

from benchmarks.linear_system import Answer, LinearSystem
from convergent.kernels.elimination import factor


def refined(system: LinearSystem) -> np.ndarray:
    """The answer in extended precision: residuals of s_i x_i + sum_j w_ij (x_i - x_j) = b_i, where nothing cancels, corrected."""
    row, column = system.graph.row.numpy(), system.graph.column.numpy()
    weight, right = system.weight.numpy().astype(np.longdouble), system.right[0].numpy().astype(np.longdouble)
    slack = slacks(system).astype(np.longdouble)
    factors, _ = factor(system.symbolic, system.weight)
    x = np.zeros_like(right)
    for _ in range(6):
        flow = np.zeros_like(right)
        np.add.at(flow, row, weight * (x[row] - x[column]))
        x += factors.solve(torch.from_numpy((right - slack * x - flow).astype(np.float64))).numpy()
    return x


def refined_answer(system: LinearSystem) -> Answer:
    """The answer and the gradient of the weights, from an adjoint that is refined in the same way."""
    row, column = system.graph.row.numpy(), system.graph.column.numpy()
    weight, right = system.weight.numpy().astype(np.longdouble), system.adjoint[0].numpy().astype(np.longdouble)
    factors, _ = factor(system.symbolic, system.weight)
    y = np.zeros_like(right)
    for _ in range(6):
        flow = np.zeros_like(right)
        np.add.at(flow, column, weight * y[row])
        y += factors.solve_transposed(torch.from_numpy((right - y + flow).astype(np.float64))).numpy()
    x = refined(system)
    return Answer(torch.from_numpy(x.astype(np.float64)), torch.from_numpy((y[row] * x[column]).astype(np.float64)))


def slacks(system: LinearSystem) -> np.ndarray:
    pointer, _, order = system.graph.rows
    weight = (system.weight if order is None else system.weight[order]).tolist()
    lanes = range(system.heads)
    spans = zip(pointer[:-1].tolist(), pointer[1:].tolist(), strict=True)
    return np.array([[fsum([1.0, *(-edge[head] for edge in weight[a:b])]) for head in lanes] for a, b in spans])
