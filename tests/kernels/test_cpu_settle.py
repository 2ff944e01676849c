"""The certified solve of small graphs: the numba kernel and the reference against dense linear algebra."""

from __future__ import annotations

import pytest
import torch

from convergent.kernels import Accuracy, Settled, cpu, reference
from kernels.test_cpu import SIZES
from operators import Problem, make

ROUNDING = torch.finfo(torch.float64).eps * 64


@pytest.fixture(params=["reference", "serial", "team"])
def settle(request, monkeypatch):
    """``settle`` of the reference, and of the kernels by one thread and by two."""
    if request.param == "team":
        monkeypatch.setattr(cpu, "_threads", lambda values: 2)
    kernels = reference if request.param == "reference" else cpu

    def run(p: Problem, accuracy: Accuracy, norm="max", x0=None, keep=None) -> Settled:
        layout = kernels.arrange(p.rows, p.segments)
        return kernels.settle(layout, p.rows, p.segments, p.weight, p.bias, x0, norm, keep, accuracy)

    return run


def accuracy(p: Problem, tol=1e-6, rtol=0.0, factor=0.8, wide=False, limit=500) -> Accuracy:
    return Accuracy(p.table(factor), None, tol, rtol, ROUNDING, wide, limit)


def exact(p: Problem) -> torch.Tensor:
    size = len(p.bias)
    edge = torch.arange(len(p.row)) if p.rows.order is None else p.rows.order.long()
    matrix = torch.zeros(p.bias.shape[1], size, size, dtype=torch.float64)
    matrix.index_put_((torch.arange(len(matrix))[:, None], p.row, p.rows.column.long()), p.weight[edge].double().T, accumulate=True)
    return torch.linalg.solve(torch.eye(size).double() - matrix, p.bias.double().T.unsqueeze(-1)).squeeze(-1).T


def norm_of(p: Problem, values: torch.Tensor, norm: str) -> torch.Tensor:
    return reference.segment_reduce(values, p.segments, norm)


def check(p: Problem, found: Settled, allowed: float, norm="max") -> None:
    """No entry is further from the exact answer than the bound says, the bound is allowed, the residual is that of the value."""
    assert found.met.all()
    error = norm_of(p, found.value.double() - exact(p), norm)
    assert (error <= found.bound + 1e-13).all()
    assert (found.bound <= allowed).all()
    defect = reference.defect(p.rows, p.weight, p.bias, found.value, "identity")
    torch.testing.assert_close(found.residual, norm_of(p, defect, norm), rtol=1e-6, atol=1e-14)


@pytest.mark.parametrize("heads", [1, 3, 4, 16, 17, 32, 40])
def test_at_every_width(settle, heads):
    p = make(SIZES, heads)
    check(p, settle(p, accuracy(p, 1e-10)), 1e-10)


@pytest.mark.parametrize(
    ("dtype", "wide", "tol"), [(torch.float32, False, 1e-5), (torch.float32, True, 1e-11), (torch.float64, False, 1e-12)]
)
@pytest.mark.parametrize("permuted", [False, True])
def test_precisions(settle, dtype, wide, tol, permuted):
    p = make(SIZES, 5, dtype, permuted)
    found = settle(p, accuracy(p, tol, wide=wide))
    assert found.value.dtype == (torch.float64 if wide else dtype)
    check(p, found, tol)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_norm_of_adjoints(settle, dtype):
    p = make(SIZES, 6, dtype, permuted=True, norm="one")
    found = settle(p, accuracy(p, 0.0, rtol=1e-5), norm="one")
    scale = float(norm_of(p, exact(p), "one").max())
    check(p, found, 1e-5 * scale, norm="one")


def test_slow_maps_and_a_tolerance_of_its_own_for_every_lane(settle):
    p = make((30, 5, 12), 3, factor=0.999)
    table = torch.logspace(-4, -9, 9, dtype=torch.float64).view(3, 3)
    found = settle(p, accuracy(p, table, factor=0.999, limit=100_000))
    assert found.met.all()
    assert (norm_of(p, found.value - exact(p), "max") <= found.bound + 1e-13).all()
    assert (found.bound <= table).all()


def test_the_amplification_it_is_given(settle):
    p = make(SIZES, 2)
    loose, tight = accuracy(p, 1e-8), accuracy(p, 1e-8)._replace(amplification=p.table(40.0))
    assert settle(p, tight).residual.max() < settle(p, loose).residual.max()


def test_a_start_at_the_answer_takes_no_step(settle):
    p = make(SIZES, 4)
    found = settle(p, accuracy(p, 1e-6), x0=exact(p))
    assert found.steps.tolist() == [0] * len(SIZES)
    check(p, found, 1e-6)
    elsewhere = settle(p, accuracy(p, 1e-6), x0=torch.full_like(p.bias, 100.0))
    assert elsewhere.steps.max() > 0
    check(p, elsewhere, 1e-6)


def test_graphs_that_are_left_out(settle):
    p = make(SIZES, 4)
    keep = torch.tensor([True, True, False, True, False])
    found = settle(p, accuracy(p), keep=keep)
    assert found.met.all(1).tolist() == keep.tolist()
    assert not found.value[p.segments[2] : p.segments[3]].any()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 3e38])
def test_a_bad_lane_spoils_no_other(settle, bad):
    p = make(SIZES, 20, torch.float32)
    good = settle(p, accuracy(p, 1e-5))
    node = int(p.segments[2])
    p.bias[node, 7] = bad
    found = settle(p, accuracy(p, 1e-5))
    expected = torch.ones_like(found.met)
    expected[2, 7] = False
    assert torch.equal(found.met, expected)
    others = torch.arange(20) != 7
    torch.testing.assert_close(found.value[:, others], good.value[:, others], rtol=0, atol=1e-5)


def test_what_float32_cannot_hold_is_left_unmet_and_soon(settle):
    p = make(SIZES, 3, torch.float32)
    p.bias.mul_(1e4)
    found = settle(p, accuracy(p, 1e-7))
    assert not found.met[[0, 2, 3, 4]].any()
    assert found.met[1].all()  # a graph without nodes
    assert found.steps.max() < 200


def test_a_limit_of_steps(settle):
    p = make(SIZES, 3, factor=0.999)
    found = settle(p, accuracy(p, 1e-12, factor=0.999, limit=3))
    assert found.steps.max() == 3
    assert not found.met[4].any()
    assert (norm_of(p, found.value - exact(p), "max") <= found.bound + 1e-9).all()


@pytest.mark.parametrize("sizes", [(), (0,), (0, 0, 3), (1,), (5,)])
def test_nothing_much(settle, sizes):
    p = make(sizes, 2)
    found = settle(p, accuracy(p, 1e-9))
    assert found.met.all()
    assert found.met.shape == (len(sizes), 2)
    p.bias.zero_()
    assert not settle(p, accuracy(p, 1e-9)).value.any()


def test_threads_do_not_change_a_bit(monkeypatch):
    p = make((30, 3, 50, 20), 40, torch.float32)
    layout = cpu.arrange(p.rows, p.segments)
    one = cpu.settle(layout, p.rows, p.segments, p.weight, p.bias, None, "max", None, accuracy(p, 1e-5))
    monkeypatch.setattr(cpu, "_threads", lambda values: 2)
    two = cpu.settle(layout, p.rows, p.segments, p.weight, p.bias, None, "max", None, accuracy(p, 1e-5))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_the_layout_holds_every_edge_once():
    p = make(SIZES, 1, permuted=True)
    layout = cpu.arrange(p.rows, p.segments).layout
    assert sorted(layout.edge.tolist()) == list(range(len(p.row)))
    assert sorted(layout.node.tolist()) == list(range(len(p.bias)))


def test_the_layout_puts_what_is_computed_last_last():
    p = make((30, 12), 1, degree=6)
    layout = cpu.arrange(p.rows, p.segments).layout
    for graph, (first, base) in enumerate(zip(layout.segments[:-1], layout.borders[:-1], strict=True)):
        nodes = layout.segments[graph + 1] - first
        lengths = [int(p.rows.pointer[node + 1] - p.rows.pointer[node]) for node in layout.node[first : first + nodes]]
        assert lengths == sorted(lengths)
        begin = 0
        for row in range(nodes):
            middle, end = layout.middle[first + row], layout.end[first + row]
            upper, lower = layout.source[base + begin : base + middle], layout.source[base + middle : base + end]
            assert (upper >= row).all()
            assert (lower < row).all()
            assert sorted(upper) == list(upper)
            assert sorted(lower) == list(lower)
            begin = end
