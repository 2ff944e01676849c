from __future__ import annotations

import torch

from convergent import Solution, Status, solve
from convergent.solvers.solution import used_methods
from problems import random_batch, random_map


def test_shapes_and_repr() -> None:
    solution = solve(random_map(random_batch([7, 5], 2, 0), heads=3, gamma=0.5))
    assert solution.value.shape == (12, 3)
    assert solution.residual.shape == solution.error_bound.shape == solution.status.shape == (2, 3)
    assert (solution.converged.dtype, solution.converged.shape) == (torch.bool, (2,))
    assert isinstance(solution.iterations, int)
    assert repr(solution).startswith("Solution(2 of 2 graphs converged, error_bound<=")


def test_a_graph_has_converged_when_all_its_heads_have() -> None:
    status = torch.tensor([[Status.CONVERGED, Status.CONVERGED], [Status.CONVERGED, Status.BUDGET]])
    steps = torch.tensor([3, 9])
    empty = torch.zeros(0)
    solution = Solution(empty, empty, empty, status, steps, used_methods(("GMRES", "Picard"), status.device))
    assert solution.converged.tolist() == [True, False]
    assert solution.iterations == 9
    assert set(solution.method.split(" + ")) == {"Picard", "GMRES"}
