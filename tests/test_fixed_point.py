from __future__ import annotations

import doctest
import importlib

import pytest
import torch

from convergent import Auto, Graph, InputError, LinearMap, solve
from problems import random_batch, random_map


def test_the_example_in_the_docstring() -> None:
    module = importlib.import_module("convergent.fixed_point")
    result = doctest.testmod(module)
    assert (result.attempted > 3, result.failed) == (True, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"solver": 1e-6}, r"solver: expected a solver such as Auto\(tol=1e-6\), but got 1e-06"),
        ({"solver": Auto}, "solver: expected a solver such as Auto"),
        ({"x0": torch.zeros(3, 2)}, r"x0: expected shape \[8, 2\], but got \[3, 2\]"),
        ({"x0": torch.zeros(8, 2)}, "x0: expected torch.float64, as the map has, but got torch.float32"),
        ({"fixed": torch.zeros(3)}, "fixed: expected a map such as LinearMap, but got Tensor"),
    ],
)
def test_bad_input_is_named(arguments: dict, message: str) -> None:
    fixed = random_map(random_batch([8], 2, 0))
    with pytest.raises(InputError, match=message):
        solve(**{"fixed": fixed, **arguments})


def test_pagerank_sums_to_one() -> None:
    """x = 0.85 A^T D^-1 x + 0.15 / n without dangling nodes: a distribution."""
    size = 200
    source = torch.arange(size).repeat_interleave(5)
    target = torch.randint(0, size, (5 * size,), generator=torch.Generator().manual_seed(0))
    graph = Graph(torch.stack([source, target]), size)
    fixed = LinearMap(graph, torch.full((5 * size, 1), 0.17, dtype=torch.float64), torch.zeros(size, 1, dtype=torch.float64))
    rank = solve(fixed.transpose(torch.full((size, 1), 0.15 / size, dtype=torch.float64)), Auto(tol=1e-10))
    assert rank.value.sum().item() == pytest.approx(1, abs=1e-9)
    assert (rank.value > 0).all()
    assert rank.error_bound.item() <= 1e-10
