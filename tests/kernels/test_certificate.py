"""Certificates of answers, on every backend: against true errors, and the launches of a GPU against plain torch."""

from __future__ import annotations

import pytest
import torch

from convergent.kernels import certificate, reference, using
from convergent.kernels.reference import Accuracy
from operators import Problem, make

SIZES = (7, 0, 23, 1, 40)
NORMS = pytest.mark.parametrize("norm", ["max", "one"])
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])


def problem(dtype=torch.float64, norm="max", heads=3, permuted=False) -> tuple[Problem, torch.Tensor]:
    """A problem and its fixed point in float64."""
    p = make(SIZES, heads, dtype, permuted, norm=norm)
    return p, reference.lu_solve(p.rows, p.segments, p.weight.double(), p.bias.double())


def accuracy(p: Problem, tol=1e-9, rtol=0.0, wide=False) -> Accuracy:
    contraction = p.table(0.8 * (1 + 2 * torch.finfo(p.weight.dtype).eps))
    return Accuracy(contraction, 1 / (1 - contraction), tol, rtol, 1e-15, wide, 1)


def certified(p: Problem, x: torch.Tensor, norm="max", **settings):
    return certificate.certify(p.rows, p.segments, p.weight, p.bias, x, norm, accuracy(p, **settings))


@NORMS
@DTYPES
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("kernels", ["reference", "cpu"])
def test_bounds_hold(norm, dtype, wide, kernels) -> None:
    p, exact = problem(dtype, norm)
    off = 1e-4 * torch.randn(exact.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with using(kernels):
        for x in (exact, exact + off):
            found = certified(p, x, norm, tol=0.1, wide=wide)
            assert found.value.dtype == (torch.float64 if wide else dtype)
            error = reference.segment_reduce(found.value.double() - exact, p.segments, norm)
            assert (error <= found.bound * (1 + 1e-12) + 1e-14).all()
            assert (found.bound <= 40 * error + 1e-5 + 1e-12).all()  # and say something
            assert (found.status == 0).all()


def test_what_is_above_the_tolerance_or_no_number_is_not_met() -> None:
    p, exact = problem()
    assert (certified(p, exact, tol=1e-9).status == 0).all()
    x = exact.clone()
    x[8, 1] += 1.0
    x[40, 2] = torch.nan
    found = certified(p, x)
    assert found.status.bool().nonzero().tolist() == [[2, 1], [4, 2]]
    assert found.bound[4, 2] == torch.inf
    tols = p.table(1e-9)
    tols[2, 1] = 100.0
    assert certified(p, x, tol=tols).status.bool().nonzero().tolist() == [[4, 2]]


def test_the_tight_factor_is_the_norm_of_the_inverse() -> None:
    p, _ = problem()
    magnitudes = reference.dense(p.rows, p.segments, p.weight.abs())
    inverse = torch.linalg.inv(torch.eye(magnitudes.shape[-1], dtype=torch.float64) - magnitudes)
    ones = torch.ones_like(p.bias)
    v = reference.lu_solve(p.rows, p.segments, p.weight.abs(), ones)
    found = certificate.tight(p.rows, p.segments, p.weight, v, p.table(0.8), 1e-15)
    for graph, size in enumerate(SIZES):
        if size:
            torch.testing.assert_close(found[graph], inverse[graph, :, :size, :size].abs().sum(-1).amax(-1), rtol=1e-9, atol=0.0)
    for bad in (torch.zeros_like(v), -v, v * torch.nan, 1e300 * v):
        proven = certificate.tight(p.rows, p.segments, p.weight, bad, p.table(0.8), 1e-15)
        assert (proven[[0, 2, 3, 4]] == torch.inf).all()


@pytest.mark.cuda
@NORMS
@DTYPES
@pytest.mark.parametrize("heads", [1, 3, 16, 17, 70])
@pytest.mark.parametrize("permuted", [False, True])
def test_launches_agree_with_plain_torch(norm, dtype, heads, permuted) -> None:
    p, exact = problem(dtype, norm, heads, permuted)
    x = exact + 1e-9
    x[8, 0] = torch.nan
    q = p.to("cuda")
    with using("reference"):
        wanted = certified(p, x, norm, tol=1e-7, rtol=1e-5)
        v = reference.lu_solve(p.rows, p.segments, p.weight.double().abs(), torch.ones_like(x))
        factor = certificate.tight(p.rows, p.segments, p.weight, v, p.table(0.8), 1e-15)
    found = certified(q, x.cuda(), norm, tol=1e-7, rtol=1e-5)
    assert torch.equal(found.status.cpu(), wanted.status)
    assert torch.equal(torch.isnan(found.value.cpu()), torch.isnan(wanted.value))
    rounding = {"rtol": 1e-6, "atol": 1e-11}
    torch.testing.assert_close(found.bound.cpu(), wanted.bound, **rounding)
    finite = torch.isfinite(wanted.bound)
    torch.testing.assert_close(found.residual.cpu()[finite], wanted.residual[finite], **rounding)
    there = certificate.tight(q.rows, q.segments, q.weight, v.cuda(), q.table(0.8), 1e-15)
    torch.testing.assert_close(there.cpu(), factor, rtol=1e-9, atol=0.0)
