"""Elimination in Triton against the kernels of the CPU, which are tested against exact arithmetic."""

from __future__ import annotations

import pytest
import torch

from convergent.kernels import cuda_schedule
from convergent.kernels.elimination import analyse, factor
from convergent.kernels.reference import Rows
from operators import Problem, make

pytestmark = pytest.mark.cuda

SIZES = (7, 0, 23, 1, 40)


def same(p: Problem, weight: torch.Tensor, tolerance: float = 1e-10) -> None:
    symbolic = analyse(p.rows, p.segments)
    right = torch.stack([p.bias.double(), torch.ones_like(p.bias).double(), p.x.double()])
    theirs, wanted = factor(symbolic, weight, right)
    mine, found = factor(symbolic, weight.cuda(), right.cuda())
    assert wanted is not None
    assert found is not None
    assert torch.equal(mine.ok.cpu(), theirs.ok)
    torch.testing.assert_close(found.cpu(), wanted, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(mine.solve(right.cuda()).cpu(), wanted, rtol=tolerance, atol=tolerance)
    transposed = mine.solve_transposed(right.cuda()).cpu(), theirs.solve_transposed(right)
    torch.testing.assert_close(*transposed, rtol=tolerance, atol=tolerance)
    again, _ = factor(symbolic, weight.cuda())
    assert torch.equal(again.numbers.panels, mine.numbers.panels)  # no sum depends on an order


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 16, 17, 70])
@pytest.mark.parametrize("permuted", [False, True])
@pytest.mark.parametrize("signs", [False, True])
def test_small_graphs(heads, permuted, signs):
    p = make(SIZES, heads, permuted=permuted, factor=0.99)
    same(p, p.weight if signs else p.weight.abs())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_weights(dtype):
    p = make(SIZES, 3, factor=0.9)
    same(p, p.weight.to(dtype))


@pytest.mark.parametrize("largest", [0, 12, 30, 64])
def test_large_fronts_are_eliminated_in_memory(largest, monkeypatch):
    monkeypatch.setattr(cuda_schedule, "LARGEST", largest)
    p = make((150, 20, 300), 2, degree=3, factor=0.99)
    same(p, p.weight.abs())
    same(p, p.weight)


@pytest.mark.parametrize(("size", "degree"), [(3000, 2), (400, 30), (1000, 8)])
def test_larger_graphs(size, degree):
    p = make((size,), 3, degree=degree, factor=0.999)
    same(p, p.weight.abs())


def test_every_digit_is_right():
    """Rows that sum to one, far from where they end: every number of the CPU's, to the last digits."""
    size = 300
    row = torch.arange(size).repeat_interleave(2)
    column = row + torch.tensor([-1, 1]).repeat(size)
    kept = (column >= 0) & (column < size)
    weight = torch.full((2 * size, 2), 0.5, dtype=torch.float64)[kept]
    weight[0] *= 2
    pointer = torch.nn.functional.pad(torch.bincount(row[kept], minlength=size).cumsum(0), (1, 0))
    symbolic = analyse(Rows(pointer, column[kept], None), torch.tensor([0, size]))
    steps = factor(symbolic, weight.cuda())[0].solve(torch.ones(size, 2).cuda()).cpu()
    exact = size**2 - torch.arange(size, dtype=torch.float64) ** 2
    torch.testing.assert_close(steps, exact.unsqueeze(1).expand(-1, 2), rtol=1e-13, atol=0.0)


def test_a_closed_class_is_flagged():
    rows = Rows(torch.tensor([0, 1, 2, 3]), torch.tensor([1, 0, 2]), None)
    weight = torch.tensor([[1.0, 0.5], [1.0, 0.5], [0.5, 0.5]], dtype=torch.float64).cuda()
    found, _ = factor(analyse(rows, torch.tensor([0, 2, 3])), weight)
    assert found.ok.tolist() == [[False, True], [True, True]]
    assert found.closed(0, 0).tolist() == [0, 1]
    assert found.solve(torch.ones(3, 2).cuda())[:, 1].tolist() == [2.0, 2.0, 2.0]


def test_no_edges_no_nodes_no_heads():
    rows = Rows(torch.zeros(4, dtype=torch.int32), torch.zeros(0, dtype=torch.int32), None)
    found, x = factor(analyse(rows, torch.tensor([0, 0, 3])), torch.zeros(0, 2).cuda(), torch.ones(1, 3, 2).cuda())
    assert x is not None
    assert torch.equal(x.cpu(), torch.ones(1, 3, 2, dtype=torch.float64))
    assert found.ok.tolist() == [[True, True], [True, True]]
    p = make(SIZES, 0)
    assert factor(analyse(p.rows, p.segments), p.weight.cuda())[0].solve(p.bias.cuda()).shape == p.bias.shape
    p = make((), 2)
    assert factor(analyse(p.rows, p.segments), p.weight.cuda())[0].solve(p.bias.cuda()).shape == p.bias.shape
