"""The numba kernels against the reference, which is the truth."""

from __future__ import annotations

import threading

import numba
import pytest
import torch

from convergent.kernels import cpu, reference
from convergent.kernels.activations import ACTIVATIONS
from convergent.kernels.reference import Rows
from operators import Problem, make

HEADS = (1, 2, 3, 4, 5, 8, 16, 17, 64, 70)
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}


SIZES = (7, 0, 23, 1, 40)
EMPTY: tuple[tuple[int, ...], ...] = ((), (0,), (0, 0, 3), (5,))


@pytest.fixture(autouse=True, scope="module")
def one_torch_thread():
    """The reference on problems this small only loses by more, and much where other processes want the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def team(monkeypatch):
    """Every call by two threads, whatever its size."""
    monkeypatch.setattr(cpu, "_threads", lambda values: 2)


@pytest.fixture(params=["serial", "team"])
def pace(request):
    if request.param == "team":
        request.getfixturevalue("team")


def agree(mine: torch.Tensor, truth: torch.Tensor, tolerance: float | None = None) -> None:
    assert mine.shape == truth.shape
    assert mine.dtype == truth.dtype
    tolerance = TOLERANCE[truth.dtype] if tolerance is None else tolerance
    torch.testing.assert_close(mine, truth, rtol=tolerance, atol=tolerance)


def one_pass(kernels, p: Problem) -> dict[str, torch.Tensor]:
    """Everything that goes through the data once."""
    return {
        "ordered": kernels.ordered(p.rows, p.weight),
        "propagate": kernels.propagate(p.rows, p.weight, p.x),
        "with bias": kernels.propagate(p.rows, p.weight, p.x, p.bias),
        "edge_product": kernels.edge_product(p.row.to(p.rows.column.dtype), p.rows.column, p.x, p.bias),
        "sum_edges": kernels.sum_edges(p.rows, p.weight),
        "edge_sum": kernels.edge_sum(p.row.to(p.rows.column.dtype), p.rows.column, p.weight, p.x, p.bias),
        "max": kernels.segment_reduce(p.x, p.segments, "max"),
        "one": kernels.segment_reduce(p.x, p.segments, "one"),
        "dot": kernels.segment_dot(p.x, p.bias, p.segments),
        "row_peaks": kernels.row_peaks(p.rows, p.segments, p.weight),
        "defect": kernels.defect(p.rows, p.weight, p.bias, p.x, "leaky_relu"),
    }


def same_pass(p: Problem) -> None:
    mine, truth = one_pass(cpu, p), one_pass(reference, p)
    for name, value in truth.items():
        loose = p.x.dtype == torch.float32 and value.dtype == torch.float32
        agree(mine[name], value, 2e-5 if loose else 1e-12)


@pytest.mark.parametrize("heads", HEADS)
def test_propagate_at_every_width(heads):
    p = make(SIZES, heads)
    agree(cpu.propagate(p.rows, p.weight, p.x, p.bias), reference.propagate(p.rows, p.weight, p.x, p.bias))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernels", [cpu, reference])
def test_what_is_not_finite_is_found(kernels, dtype):
    values = torch.randn(50, 3, dtype=dtype)
    values[0, 0] = torch.finfo(dtype).max
    assert kernels.all_finite(values)
    assert kernels.all_finite(values[:0])
    for bad in (torch.nan, torch.inf, -torch.inf):
        values[49, 2] = bad
        assert not kernels.all_finite(values)


@pytest.mark.parametrize("permuted", [False, True])
@pytest.mark.parametrize(("heads", "dtype"), [(1, torch.float64), (3, torch.float64), (16, torch.float32)])
def test_one_pass(heads, dtype, permuted):
    same_pass(make(SIZES, heads, dtype, permuted))


@pytest.mark.usefixtures("team")
def test_one_pass_by_a_team():
    for permuted in (False, True):
        same_pass(make((3000, 0, 9000, 40), 16, torch.float32, permuted))  # longer than one piece of a reduction


@pytest.mark.parametrize("sizes", EMPTY)
def test_one_pass_on_next_to_nothing(sizes):
    same_pass(make(sizes, 3))
    without_edges = make(sizes, 3)
    nodes = len(without_edges.bias)
    none = torch.zeros(0, dtype=torch.int32)
    without_edges.rows = Rows(torch.zeros(nodes + 1, dtype=torch.int32), none, None)
    without_edges.weight, without_edges.row = without_edges.weight[:0], none
    same_pass(without_edges)


def test_no_heads():
    p = make(SIZES, 0)
    same_pass(p)
    for solve in (
        lambda k: k.picard(p.rows, p.segments, p.weight, p.bias, p.x, "identity", "max", p.table(0.8), p.table(1e-9), 9),
        lambda k: k.deflated(p.rows, p.segments, p.weight, p.bias, "max", p.table(0.8), p.table(1e-9), 9),
    ):
        agree(solve(cpu)[0], solve(reference)[0])
        assert solve(cpu)[1].tolist() == solve(reference)[1].tolist()
    assert cpu.lu_solve(p.rows, p.segments, p.weight, p.bias).shape == p.bias.shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_single_weights_are_accumulated_in_double(dtype):
    p = make(SIZES, 16, torch.float32)
    x = p.x.to(dtype)
    agree(cpu.defect(p.rows, p.weight, p.bias, x, "tanh"), reference.defect(p.rows, p.weight, p.bias, x, "tanh"), 1e-13)
    wide = x.double()
    agree(cpu.propagate(p.rows, p.weight, wide, p.bias), reference.propagate(p.rows, p.weight, wide, p.bias), 1e-13)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation):
    p = make(SIZES, 16, factor=3.0)
    agree(cpu.defect(p.rows, p.weight, p.bias, p.x, activation), reference.defect(p.rows, p.weight, p.bias, p.x, activation))
    solve = [
        k.picard(p.rows, p.segments, p.weight, p.bias, p.x, activation, "max", p.table(0.8), p.table(0.0), 2)[0]
        for k in (cpu, reference)
    ]
    agree(*solve, tolerance=1e-11)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(("size", "count"), [(0, 0), (1, 0), (5, 200), (300, 50)])
def test_group(size, count, dtype):
    keys = torch.randint(0, max(size, 1), (count,), generator=torch.Generator().manual_seed(0)).to(dtype)
    for mine, truth in zip(cpu.group(keys, size), reference.group(keys.long(), size), strict=True):
        assert mine.dtype == torch.int64
        assert torch.equal(mine, truth)


@pytest.mark.parametrize("key", [-1, 3])
def test_group_refuses_keys_out_of_range(key):
    with pytest.raises(ValueError, match=r"keys must lie in 0 \.\. 2"):
        cpu.group(torch.tensor([0, key, 1]), 3)


def test_inputs_may_be_strided_and_require_grad():
    p = make(SIZES, 3)
    weight = p.weight.t().contiguous().t().requires_grad_()
    x = torch.stack([p.x, p.x], 2)[..., 0]
    agree(cpu.propagate(p.rows, weight, x, p.bias), reference.propagate(p.rows, p.weight, p.x, p.bias))


# --- whole solves ---


def picard(kernels, p: Problem, norm="max", activation="identity", rate=0.8, goal=1e-9, limit=300):
    return kernels.picard(p.rows, p.segments, p.weight, p.bias, p.x, activation, norm, p.table(rate), p.table(goal), limit)


def deflated(kernels, p: Problem, norm="max", rate=0.8, goal=1e-9, limit=300):
    return kernels.deflated(p.rows, p.segments, p.weight, p.bias, norm, p.table(rate), p.table(goal), limit)


def same_solve(solve, p: Problem, accuracy: float, **settings) -> None:
    (mine, steps), (truth, true_steps) = solve(cpu, p, **settings), solve(reference, p, **settings)
    assert steps.dtype == torch.int64
    assert (steps - true_steps).abs().max() <= 1
    assert true_steps.max() > 3
    # both are within goal / (1 - rate) of the fixed point
    agree(mine, truth, accuracy)


@pytest.mark.parametrize("norm", ["max", "one"])
@pytest.mark.parametrize("solve", [picard, deflated])
@pytest.mark.parametrize("heads", [1, 3, 5, 16])
def test_solves_in_cache(solve, heads, norm):
    for permuted in (False, True):
        same_solve(solve, make(SIZES, heads, permuted=permuted, norm=norm), 1e-8, norm=norm)


@pytest.mark.parametrize("heads", [64, 70])
@pytest.mark.parametrize("solve", [picard, deflated])
def test_solves_in_cache_in_single_precision(solve, heads):
    same_solve(solve, make(SIZES, heads, torch.float32), 1e-4, goal=1e-5)


@pytest.mark.parametrize("norm", ["max", "one"])
@pytest.mark.parametrize("solve", [picard, deflated])
def test_solves_in_memory(solve, norm, monkeypatch, pace):
    monkeypatch.setattr(cpu, "CACHE", 1 << 10)  # the smallest graphs still go through the cache
    same_solve(solve, make((7, 0, 230, 1, 400), 16, permuted=True, norm=norm, factor=0.5), 1e-5, norm=norm, rate=0.5, goal=1e-6)


def test_activated_solve_in_memory(monkeypatch):
    monkeypatch.setattr(cpu, "CACHE", 0)
    for activation in ("relu", "leaky_relu", "tanh"):
        same_solve(picard, make(SIZES, 16, factor=0.5), 1e-5, activation=activation, rate=0.5, goal=1e-6)


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize("solve", [picard, deflated])
def test_solves_by_a_team(solve):
    same_solve(solve, make((7, 0, 30) * 20, 16), 1e-8)


@pytest.mark.parametrize("cache", [0, 1 << 20])
@pytest.mark.parametrize("solve", [picard, deflated])
def test_one_slow_graph(solve, cache, monkeypatch):
    """Each graph takes its own number of steps, and one that asks for nothing takes none and stays as it is."""
    monkeypatch.setattr(cpu, "CACHE", cache)
    p = make((20, 20, 20), 16)
    slow = p.row < 20
    p.weight[~slow] *= 0.1
    idle = p.table(1e-9)
    idle[2] = torch.inf
    p.table = lambda value: idle if value == 1e-9 else torch.full_like(idle, value)
    (mine, steps), (truth, true_steps) = solve(cpu, p), solve(reference, p)
    assert steps.tolist() == true_steps.tolist()
    assert steps[0] > 2 * steps[1] > 0
    assert steps[2] == 0
    agree(mine, truth, 1e-8)
    assert torch.equal(mine[40:], truth[40:])


@pytest.mark.parametrize("cache", [0, 1 << 20])
@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_limit(limit, cache, monkeypatch):
    monkeypatch.setattr(cpu, "CACHE", cache)
    p = make(SIZES, 16)
    for solve in (picard, deflated):
        (mine, steps), (truth, true_steps) = solve(cpu, p, limit=limit), solve(reference, p, limit=limit)
        assert steps.tolist() == true_steps.tolist()
        agree(mine, truth)


@pytest.mark.parametrize("cache", [0, 1 << 20])
@pytest.mark.parametrize("solve", [picard, deflated])
def test_rounding_ends_a_solve(solve, cache, monkeypatch):
    monkeypatch.setattr(cpu, "CACHE", cache)
    _, steps = solve(cpu, make((40,), 16, factor=0.3), goal=0.0, limit=2000)
    assert 20 < steps.max() < 100


def test_wide_indices():
    p = make(SIZES, 3, index=torch.int64, permuted=True)
    agree(cpu.propagate(p.rows, p.weight, p.x, p.bias), reference.propagate(p.rows, p.weight, p.x, p.bias))
    same_solve(picard, p, 1e-8)


@pytest.mark.parametrize("sizes", EMPTY)
def test_solves_of_next_to_nothing(sizes):
    p = make(sizes, 3)
    for solve in (picard, deflated):
        (mine, steps), (truth, true_steps) = solve(cpu, p), solve(reference, p)
        agree(mine, truth, 1e-8)
        assert (steps - true_steps).abs().sum() <= 1
    agree(cpu.lu_solve(p.rows, p.segments, p.weight, p.bias), reference.lu_solve(p.rows, p.segments, p.weight, p.bias))


@pytest.mark.parametrize("norm", ["max", "one"])
@pytest.mark.parametrize(("heads", "dtype"), [(3, torch.float64), (70, torch.float32)])
def test_lu_solve(heads, dtype, norm):
    p = make(SIZES, heads, dtype, permuted=True, norm=norm)
    agree(
        cpu.lu_solve(p.rows, p.segments, p.weight, p.bias),
        reference.lu_solve(p.rows, p.segments, p.weight, p.bias),
        20 * TOLERANCE[dtype],
    )


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize("kernels", [cpu, reference])
def test_a_singular_matrix_does_not_concern_the_others(kernels):
    rows, segments = Rows(torch.tensor([0, 1, 2, 3, 4]), torch.tensor([1, 0, 3, 2]), None), torch.tensor([0, 2, 4])
    weight, bias = torch.tensor([[1.0], [1.0], [0.5], [0.5]], dtype=torch.float64), torch.ones(4, 1, dtype=torch.float64)
    x = kernels.lu_solve(rows, segments, weight, bias)
    assert not torch.isfinite(x[:2]).any()
    assert x[2:].flatten().tolist() == [2.0, 2.0]


def test_lu_solve_by_a_team():
    p = make(SIZES * 9, 3)
    agree(cpu.lu_solve(p.rows, p.segments, p.weight, p.bias), reference.lu_solve(p.rows, p.segments, p.weight, p.bias), 1e-11)


# --- NaN, determinism, threads ---


@pytest.mark.parametrize("heads", [3, 16])
def test_nan_stays(heads):
    p = make((9000, 5), heads)
    p.x[4000, 2] = torch.nan
    for norm in ("max", "one"):
        mine = cpu.segment_reduce(p.x, p.segments, norm)
        assert mine.isnan().tolist() == reference.segment_reduce(p.x, p.segments, norm).isnan().tolist()
        assert mine.isnan().sum() == 1
    mine, truth = (k.propagate(p.rows, p.weight, p.x, p.bias).isnan() for k in (cpu, reference))
    assert truth.any()
    assert torch.equal(mine, truth)


@pytest.mark.parametrize("cache", [0, 1 << 20])
def test_a_graph_with_nan_ends_with_its_other_heads_and_spoils_no_other_graph(cache, monkeypatch):
    monkeypatch.setattr(cpu, "CACHE", cache)
    p = make((20, 20), 16)
    p.bias[3, 1] = torch.nan
    for solve in (picard, deflated):
        value, steps = solve(cpu, p, limit=150)
        assert (steps < 150).all()
        assert value[3, 1].isnan()
        assert value[20:].isfinite().all()


def test_twice_the_same(pace, monkeypatch):
    p = make((3000, 40), 16, torch.float32)
    first, second = one_pass(cpu, p), one_pass(cpu, p)
    assert all(torch.equal(first[name], second[name]) for name in first)
    p = make((1000, 40), 16)
    for cache in (0, 1 << 20):
        monkeypatch.setattr(cpu, "CACHE", cache)
        for solve in (picard, deflated):
            values = [solve(cpu, p, norm="one", goal=1e-3, limit=4)[0] for _ in range(2)]
            assert torch.equal(*values)


def test_as_many_threads_as_torch_but_one_for_little_work(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(numba, "get_num_threads", lambda: 3)
    assert [cpu._threads(values) for values in (0, cpu.SERIAL - 1, cpu.SERIAL)] == [1, 1, 2]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert cpu._threads(cpu.SERIAL) == 3


def test_from_another_thread(pace):
    p = make(SIZES, 16, torch.float32)
    found = []
    others = [threading.Thread(target=lambda: found.append(cpu.propagate(p.rows, p.weight, p.x, p.bias))) for _ in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    truth = reference.propagate(p.rows, p.weight, p.x, p.bias)
    assert len(found) == 2
    for value in found:
        agree(value, truth)
