"""The readable elimination against torch.linalg, and its patterns against numbers."""

from __future__ import annotations

import pytest
import torch

from convergent.kernels import reference_elimination as plain


@pytest.mark.parametrize("signs", [False, True])
def test_solves(signs):
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(7, 7, 3, generator=generator, dtype=torch.float64)
    weight[..., 0] *= torch.where(torch.rand(7, 7, generator=generator) < 0.5, -1.0 if signs else 1.0, 1.0)
    weight *= 0.9 / weight.abs().sum(1, keepdim=True)
    b = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    factors, ok = plain.eliminate(weight, 1 - weight.sum(1))
    assert ok.tolist() == [True, True, True]
    matrix = torch.eye(7) - weight.permute(2, 0, 1)
    for solve, operator in ((plain.substitute, matrix), (plain.substitute_transposed, matrix.mT)):
        x = b.clone()
        solve(factors, x)
        torch.testing.assert_close(x, torch.linalg.solve(operator, b.T.unsqueeze(2)).squeeze(2).T)


def test_the_slack_decides_not_the_diagonal():
    """Two nodes that read each other and lose 2^-80 together: the diagonal of the second pivot would be 0."""
    weight = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64).unsqueeze(2)
    factors, ok = plain.eliminate(weight, torch.tensor([[2.0**-80], [0.0]], dtype=torch.float64))
    assert ok.tolist() == [True]
    assert factors.pivots.squeeze(1).tolist() == [1.0, 2.0**-80]
    _, ok = plain.eliminate(weight, torch.zeros(2, 1, dtype=torch.float64))
    assert ok.tolist() == [False]


def test_patterns():
    path = [{1}, {0, 2}, {1, 3}, {2}]
    assert plain.columns_of_factor(path, [0, 1, 2, 3]) == [{1}, {2}, {3}, set()]
    assert plain.columns_of_factor(path, [1, 0, 2, 3]) == [{0, 2}, {2}, {3}, set()]
    star = [{1, 2, 3}, {0}, {0}, {0}]
    assert plain.minimum_degree(star)[:2] == [1, 2]
