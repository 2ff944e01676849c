"""The Triton kernels against the reference in float64 on the CPU, which is the truth."""

from __future__ import annotations

import pytest
import torch

from convergent import (
    GMRES,
    ActivatedMap,
    Anderson,
    Auto,
    BiCGStab,
    ContractionError,
    Deflated,
    Direct,
    Graph,
    InputError,
    LinearMap,
    Multigrid,
    Picard,
    solve,
    weights,
)
from convergent.kernels import reference, using
from convergent.kernels.activations import ACTIVATIONS
from convergent.kernels.reference import Accuracy, Rows
from convergent.nn import ConvergentGraphSolver
from operators import Problem, make

pytestmark = pytest.mark.cuda

SOLVERS = [Auto, Picard, Anderson, BiCGStab, GMRES, Direct, Multigrid]
HEADS = (1, 2, 3, 4, 5, 8, 16, 17, 64, 70, 512)
CONTRACTION = {dtype: 0.8 * (1 + 2 * torch.finfo(dtype).eps) for dtype in (torch.float64, torch.float32)}  # weights are rounded
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}
SIZES = (7, 0, 23, 1, 40)
SHAPES: tuple[tuple[int, ...], ...] = (SIZES, (), (0,), (0, 0, 3), (5,), (3000,), (9000, 2, 5000))


@pytest.fixture(scope="module")
def cuda():
    pytest.importorskip("triton")
    from convergent.kernels import cuda

    return cuda


def one_pass(kernels, p: Problem) -> dict[str, torch.Tensor]:
    """Everything that goes through the data once."""
    found = {
        "propagate": kernels.propagate(p.rows, p.weight, p.x),
        "biased": kernels.propagate(p.rows, p.weight, p.x, p.bias),
        "defect": kernels.defect(p.rows, p.weight, p.bias, p.x, "identity"),
        "activated": kernels.defect(p.rows, p.weight, p.bias, p.x, "tanh"),
        "max": kernels.segment_reduce(p.x, p.segments, "max"),
        "one": kernels.segment_reduce(p.x, p.segments, "one"),
        "dot": kernels.segment_dot(p.x, p.bias, p.segments),
        "peaks": kernels.row_peaks(p.rows, p.segments, p.weight),
        "edges": kernels.edge_product(p.row.to(p.rows.column.dtype), p.rows.column, p.bias, p.x),
        "summed": kernels.sum_edges(p.rows, p.weight),
        "sums": kernels.edge_sum(p.row.to(p.rows.column.dtype), p.rows.column, p.weight, p.bias, p.x),
    }
    return {name: value.cpu().double() for name, value in found.items()}


def same_pass(cuda, p: Problem) -> None:
    wide = make_wide(p)
    mine, truth = one_pass(cuda, p.to("cuda")), one_pass(reference, wide)
    for name, value in truth.items():
        tolerance = TOLERANCE[p.x.dtype if name in ("propagate", "biased", "edges", "summed", "sums") else torch.float64]
        torch.testing.assert_close(
            mine[name], value, rtol=tolerance, atol=tolerance * max(1.0, len(p.x) ** 0.5), msg=lambda m, n=name: f"{n}: {m}"
        )


def make_wide(p: Problem) -> Problem:
    from dataclasses import replace

    return replace(p, weight=p.weight.double(), bias=p.bias.double(), x=p.x.double())


@pytest.mark.parametrize("permuted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("heads", HEADS)
def test_one_pass(cuda, heads, dtype, permuted) -> None:
    same_pass(cuda, make(SIZES, heads, dtype, permuted))


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_shapes(cuda, sizes, index) -> None:
    same_pass(cuda, make(sizes, 3, torch.float32, True, index))


def hub(leaves: int, heads: int) -> Problem:
    """One row of very many edges among short ones, and its transpose, where that node is read by all."""
    p = make((leaves,), heads, torch.float32, degree=1)
    generator = torch.Generator().manual_seed(0)
    row = torch.cat([p.row, torch.full((leaves,), 5)])
    column = torch.cat([p.rows.column.long(), torch.randint(0, leaves, (leaves,), generator=generator)])
    pointer, order = reference.group(row, leaves)
    weight = torch.randn(len(row), heads, generator=generator) / leaves
    p.rows, p.weight, p.row = Rows(pointer.int(), column[order].int(), None), weight, row[order]
    return p


@pytest.mark.parametrize(("leaves", "heads"), [(1_000_000, 2), (5_000, 1), (3_000, 70)])
def test_hubs(cuda, leaves, heads) -> None:
    same_pass(cuda, hub(leaves, heads))


def test_bfloat16_weights_are_summed_in_float32(cuda) -> None:
    p = make(SIZES, 8, torch.float32)
    rounded = p.weight.bfloat16()
    mine = cuda.propagate(p.to("cuda").rows, rounded.cuda(), p.x.cuda()).cpu()
    assert mine.dtype == torch.float32
    torch.testing.assert_close(mine.double(), reference.propagate(p.rows, rounded.double(), p.x.double()), rtol=1e-5, atol=1e-5)


def test_nan_and_infinity_are_seen(cuda) -> None:
    p = make(SIZES, 3, torch.float32)
    p.x[2, 1], p.x[9, 0] = float("nan"), float("inf")
    on_device = p.to("cuda")
    assert not cuda.all_finite(on_device.x)
    for norm in ("max", "one"):
        found = cuda.segment_reduce(on_device.x, on_device.segments, norm).cpu()
        torch.testing.assert_close(found, reference.segment_reduce(p.x, p.segments, norm), equal_nan=True)
    assert cuda.all_finite(torch.full((3, 3), 3e38, device="cuda"))  # finite, though its sum is not


# --- whole solves of small graphs ---


def settled(cuda, p: Problem, norm="max", tol=1e-6, rtol=0.0, wide=False, x0=None, keep=None, limit=500):
    q = p.to("cuda")
    contraction = q.table(CONTRACTION[p.weight.dtype])
    accuracy = Accuracy(contraction, None, tol, rtol, 1e-15, wide, limit)
    x0, keep = (None if part is None else part.cuda() for part in (x0, keep))
    found = cuda.settle(None, q.rows, q.segments, q.weight, q.bias, x0, norm, keep, accuracy)
    return type(found)(*(part.cpu() for part in found))


def exact(p: Problem) -> torch.Tensor:
    wide = make_wide(p)
    return reference.lu_solve(wide.rows, wide.segments, wide.weight, wide.bias)


def check(p: Problem, found, norm="max") -> None:
    error = reference.segment_reduce(found.value.double() - exact(p), p.segments, norm)
    assert (error <= found.bound * (1 + 1e-9) + 1e-13).all()


@pytest.mark.parametrize("norm", ["max", "one"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("heads", [1, 3, 8, 16, 17, 64])
@pytest.mark.parametrize("permuted", [False, True])
def test_settle(cuda, heads, dtype, norm, permuted) -> None:
    p = make(SIZES, heads, dtype, permuted, norm=norm)
    tol = 1e-5 if dtype == torch.float32 else 1e-10
    found = settled(cuda, p, norm, tol=tol)
    assert found.met.all()
    assert (found.bound <= tol).all()
    check(p, found, norm)


def test_settle_from_a_start_is_shorter(cuda) -> None:
    p = make((40, 60), 4, torch.float64)
    cold = settled(cuda, p, tol=1e-9)
    warm = settled(cuda, p, tol=1e-9, x0=cold.value)
    assert warm.met.all()
    assert (warm.steps == 0).all()
    check(p, warm)


def test_settle_only_what_is_kept(cuda) -> None:
    p = make((6, 30, 9), 4, torch.float64)
    keep = torch.tensor([True, False, True])
    found = settled(cuda, p, keep=keep)
    assert found.met.all(1).tolist() == keep.tolist()
    assert torch.isinf(found.bound[1]).all()


def test_settle_says_what_it_cannot_hold_and_what_overflows(cuda) -> None:
    p = make((30, 20), 3, torch.float32)
    too_fine = settled(cuda, p, tol=1e-12)
    assert not too_fine.met.any()
    check(p, too_fine)
    p.bias[0, 1] = float("nan")
    broken = settled(cuda, p, tol=1e-5)
    assert not broken.met[0, 1]
    assert broken.met[1].all()
    assert broken.met[0, [0, 2]].all()
    short = settled(cuda, make((30,), 2, torch.float64), tol=1e-12, limit=3)
    assert short.steps.tolist() == [3]
    assert not short.met.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", ["max", "one"])
def test_settle_says_what_it_means(cuda, norm, dtype) -> None:
    """Met if and only if the bound is within the tolerance, and no error above the bound, whatever is asked for."""
    p = make((7, 0, 23, 1, 12), 3, dtype, True, norm=norm)
    asked = [(1e-5, 0.0), (0.0, 1e-6), (3e-8, 0.0), (1e-14, 1e-14), (0.0, 10.0)]
    settings = [(tol, rtol, False, 500) for tol, rtol in asked] + [(1e-9, 0.0, True, 500), (1e-3, 0.0, False, 1)]
    for tol, rtol, wide, limit in settings:
        found = settled(cuda, p, norm, tol, rtol, wide, limit=limit)
        allowed = tol + rtol * reference.segment_reduce(found.value.double(), p.segments, norm)
        assert torch.equal(found.met, found.bound <= allowed)
        check(p, found, norm)


def test_settle_overflows_when_it_rounds(cuda) -> None:
    p = make((1,), 1, torch.float32)
    p.weight.fill_(0.2)  # two self loops
    p.bias.fill_(3e38)
    found = settled(cuda, p, rtol=1e-6, limit=200)
    assert torch.isinf(found.value).all()
    assert not found.met.any()
    assert torch.isinf(found.bound).all()


# --- any size, 0 and 1 included: a number that is 1 is a constant to the compiler ---

SMALLEST = [(), (0,), (1,), (2,), (1, 1), (0, 1, 0), (1, 40)]


def tiny(sizes: tuple[int, ...], heads: int, edges: str, dtype: torch.dtype) -> tuple[Graph, torch.Tensor, torch.Tensor]:
    """A batch of these sizes with no edge, one edge or some, and the parameters of a map on it."""
    start = torch.tensor([0, *sizes]).cumsum(0)[:-1]
    nodes = [int(first) for first, size in zip(start, sizes, strict=True) if size]
    chosen = {"no edge": [], "one edge": nodes[:1], "edges": nodes * 3}[edges]
    index = torch.tensor([chosen, chosen], dtype=torch.long).view(2, -1)
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes, dtype=torch.long))
    graph = Graph(index, sum(sizes), batch=batch)
    generator = torch.Generator().manual_seed(len(chosen) + heads)
    weight = 0.6 / 3 * torch.rand(len(chosen), heads, generator=generator, dtype=dtype)
    return graph, weight, torch.randn(sum(sizes), heads, generator=generator, dtype=dtype)


@pytest.mark.parametrize("edges", ["no edge", "one edge", "edges"])
@pytest.mark.parametrize("heads", [0, 1, 2, 17])
@pytest.mark.parametrize("sizes", SMALLEST, ids=str)
def test_the_smallest_of_everything(cuda, sizes, heads, edges) -> None:
    for dtype, tol in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
        graph, weight, bias = tiny(sizes, heads, edges, dtype)
        there = graph.to("cuda")
        for solver in (
            *(kind(tol=tol) for kind in (*SOLVERS, Deflated)),
            Auto(tol=tol, certify="tight"),
            Picard(tol=tol, refine=True),
        ):
            given = [part.cuda().requires_grad_() for part in (weight, bias)]
            found = solve(LinearMap(there, *given), solver)
            with using("reference"):
                wanted = solve(LinearMap(graph, weight, bias), Picard(tol=tol, throw=False))
            assert found.converged.all()
            torch.testing.assert_close(found.value.detach().cpu().to(dtype), wanted.value, rtol=0, atol=3 * tol)
            gradients = torch.autograd.grad(found.value.sum(), given)
            assert all(torch.isfinite(part).all() for part in gradients)
        for method in (Picard, Anderson, Auto):
            found = solve(ActivatedMap(there, weight.cuda(), bias.cuda(), "tanh"), method(tol=tol))
            assert found.converged.all()


@pytest.mark.parametrize("limit", [1, 2, 16])
def test_a_limit_of_one_step(cuda, limit) -> None:
    p = make((1, 5), 3, torch.float32)
    assert settled(cuda, p, limit=limit).steps.max() <= limit
    for name in ("picard", "deflated"):
        _, steps = stepped(cuda, p.to("cuda"), name, "max", "identity", 1e-7, limit=limit)
        assert steps.max() <= limit


@pytest.mark.parametrize("edges", ["no edge", "one edge", "edges"])
@pytest.mark.parametrize("sizes", SMALLEST, ids=str)
def test_one_pass_over_the_smallest_of_everything(cuda, sizes, edges) -> None:
    for heads in (1, 2, 17):
        graph, weight, bias = tiny(sizes, heads, edges, torch.float32)
        row = graph.row.long()
        same_pass(cuda, Problem(graph.rows, graph.segments, weight, bias, bias.clone() + 1, row))


# --- the engine on the device ---


def random_map(device: str, sizes=(30, 1, 200), heads=3, gamma=0.9, dtype=torch.float64, permuted=True) -> LinearMap:
    p = make(sizes, heads, dtype, degree=4)
    row = p.row
    generator = torch.Generator().manual_seed(1)
    order = torch.randperm(len(row), generator=generator) if permuted else torch.arange(len(row))
    edges = torch.stack([row, p.rows.column.long()])[:, order]
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    graph = Graph(edges, sum(sizes), batch=batch)
    logits = torch.randn(len(row), heads, generator=generator, dtype=dtype)
    weight = weights.softmax(graph, logits, gamma)
    graph = graph.to(device)
    return LinearMap(graph, weight.to(device).requires_grad_(), p.bias.to(device).requires_grad_())


@pytest.mark.parametrize("gamma", [0.5, 0.99])
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_agrees_with_the_cpu(cuda, solver, gamma) -> None:
    here, there = (random_map(device, gamma=gamma) for device in ("cpu", "cuda"))
    with using("reference"):
        truth = solve(here, Auto(tol=1e-10))
    found = solve(there, solver(tol=1e-9))
    assert found.converged.all()
    error = here.size(found.value.detach().cpu() - truth.value.detach())
    assert (error <= found.error_bound.cpu() + 1e-10).all()
    cotangent = torch.randn(truth.value.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    with using("reference"):
        expected = torch.autograd.grad(truth.value, [here.weight, here.bias], cotangent)
    gradients = torch.autograd.grad(found.value, [there.weight, there.bias], cotangent.cuda())
    for mine, wanted in zip(gradients, expected, strict=True):
        torch.testing.assert_close(mine.cpu(), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("heads", [1, 4, 16])
def test_large_graphs(cuda, heads) -> None:
    here, there = (random_map(device, (20_000,), heads, 0.95) for device in ("cpu", "cuda"))
    found = solve(there, Auto(tol=1e-8))
    with using("reference"):
        truth = solve(here, Auto(tol=1e-10))
    assert found.converged.all()
    assert float((found.value.detach().cpu() - truth.value.detach()).abs().max()) <= float(found.error_bound.max()) + 1e-10


def test_results_are_the_same_every_time(cuda) -> None:
    for sizes in ((30, 1, 200), (20_000,)):
        there = random_map("cuda", sizes, 8, dtype=torch.float32)
        first, second = (solve(there, Auto(tol=1e-4)).value for _ in range(2))
        assert torch.equal(first, second)
        gradients = [torch.autograd.grad(value.square().sum(), there.weight)[0] for value in (first, second)]
        assert torch.equal(*gradients)


def test_a_model_on_the_device(cuda) -> None:
    torch.manual_seed(0)
    model = ConvergentGraphSolver(3, 2, heads=8, layers=2)
    p = make((20, 30), 3, torch.float32)
    edges, x = torch.stack([p.row, p.rows.column.long()]), torch.randn(50, 3)
    edge_attr, batch = torch.randn(edges.shape[1], 2), torch.repeat_interleave(torch.arange(2), torch.tensor([20, 30]))
    with using("reference"):
        expected = model(x, edges, edge_attr, batch)
        expected.square().sum().backward()
    wanted = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model.cuda()
    found = model(x.cuda(), edges.cuda(), edge_attr.cuda(), batch.cuda())
    found.square().sum().backward()
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
    for mine, other in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(mine.grad.cpu(), other, rtol=2e-3, atol=1e-4)


def test_bad_input_is_named_when_it_is_solved(cuda) -> None:
    graph = Graph(torch.tensor([[0, 1], [1, 0]]), 2).to("cuda")
    good, zeros = torch.full((2, 1), 0.5, device="cuda"), torch.zeros(2, 1, device="cuda")
    for solver in (Auto(), Picard(), BiCGStab()):
        with pytest.raises(ContractionError, match="graph 0, head 0"):
            solve(LinearMap(graph, 3 * good, zeros), solver)
        with pytest.raises(InputError, match="weight: expected finite numbers, but got NaN"):
            solve(LinearMap(graph, good * torch.nan, zeros), solver)
        with pytest.raises(InputError, match="bias: expected finite numbers"):
            solve(LinearMap(graph, good, zeros / 0), solver)
    with pytest.raises(InputError, match="bias: expected a tensor on cuda"):
        LinearMap(graph, good, torch.zeros(2, 1))


# --- steps on graphs of any size ---


def stepped(kernels, p: Problem, name: str, norm: str, activation: str, goal: float, limit: int = 300):
    start = (torch.zeros_like(p.bias), activation) if name == "picard" else ()
    goals = p.table(goal)
    goals[:1, :1] = torch.inf  # a lane that is done before the first step
    call = (
        p.rows,
        p.segments,
        p.weight,
        p.bias,
        *start,
        norm,
        p.table(0.8 * (1 + 2 * torch.finfo(p.weight.dtype).eps)),
        goals,
        limit,
    )
    return tuple(part.cpu() for part in getattr(kernels, name)(*call))


@pytest.mark.parametrize("name", ["picard", "deflated"])
@pytest.mark.parametrize("norm", ["max", "one"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("sizes", "heads"), [(SIZES, 3), ((6000,), 1), ((6000,), 4), ((400, 0, 9000), 17), ((700,), 64)])
def test_steps(cuda, sizes, heads, dtype, norm, name) -> None:
    p = make(sizes, heads, dtype, permuted=True, norm=norm)
    goal = (1e-4 if norm == "max" else 1e-2) if dtype == torch.float32 else 1e-9  # a sum over nodes rounds as often
    value, steps = stepped(cuda, p.to("cuda"), name, norm, "identity", goal)
    truth, _ = stepped(reference, make_wide(p), "picard", norm, "identity", 1e-12)
    error = reference.segment_reduce(value.double() - truth, p.segments, norm)[1 if len(sizes) > 1 else 0 :]
    assert (error[:, 1:] <= 1.01 * goal / 0.2 + 1e-12).all()
    assert (steps < 300).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_with_an_activation(cuda, activation, dtype) -> None:
    p = make((9, 0, 700), 5, dtype)
    p.weight /= 1.2  # of the activations whose slopes exceed one
    value, steps = stepped(cuda, p.to("cuda"), "picard", "max", activation, 0.0, limit=40)
    truth, expected = stepped(reference, make_wide(p), "picard", "max", activation, 0.0, limit=40)
    torch.testing.assert_close(value.double(), truth, rtol=0, atol=1e-11 if dtype == torch.float64 else 1e-5)
    assert (steps <= expected + 4).all()


@pytest.mark.parametrize("name", ["picard", "deflated"])
def test_steps_of_a_hub(cuda, name) -> None:
    p = hub(5_000, 3)
    p.weight = p.weight.abs() * 0.5 / float(reference.row_peaks(p.rows, p.segments, p.weight).max())
    value, _ = stepped(cuda, p.to("cuda"), name, "max", "identity", 1e-5)
    truth, _ = stepped(reference, make_wide(p), "picard", "max", "identity", 1e-12)
    torch.testing.assert_close(value[:, 1:].double(), truth[:, 1:], rtol=0, atol=1e-4)


def test_steps_stop_where_there_is_no_number(cuda) -> None:
    p = make((3000, 2000), 3, torch.float32)
    p.bias[10, 1] = torch.nan
    _, steps = stepped(cuda, p.to("cuda"), "picard", "max", "identity", 1e-4, limit=100_000)
    assert (steps < 200).all()


# --- bfloat16 and CUDA graphs ---


def test_weights_stay_in_bfloat16(cuda) -> None:
    for sizes in ((30, 1, 200), (20_000,)):
        there = random_map("cuda", sizes, 4, 0.9, torch.float32)
        rounded = there.weight.detach().bfloat16().requires_grad_()
        stored, widened = LinearMap(there.graph, rounded, there.bias), LinearMap(there.graph, rounded.detach().float(), there.bias)
        assert stored.weight.dtype == torch.bfloat16
        found, wanted = solve(stored, Auto(tol=1e-4)), solve(widened, Auto(tol=1e-4))
        assert found.value.dtype == torch.float32
        assert float((found.value - wanted.value).detach().abs().max()) <= float(found.error_bound.max() + wanted.error_bound.max())
        gradient = torch.autograd.grad(found.value.sum(), rounded)[0]
        assert gradient.dtype == torch.bfloat16
        assert torch.isfinite(gradient).all()


def captured(work):
    """A CUDA graph of this work, and where it leaves its results."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = work()
    return graph, results


def test_a_solve_inside_a_cuda_graph(cuda) -> None:
    there = random_map("cuda", (30, 1, 200), 8, 0.5, torch.float32)
    weight, bias = there.weight.detach(), there.bias.detach()

    def work():
        given = [weight.detach().requires_grad_(), bias.detach().requires_grad_()]
        solution = solve(LinearMap(there.graph, *given), Auto(tol=1e-5))
        return solution, torch.autograd.grad(solution.value.square().sum(), given)

    graph, (solution, gradients) = captured(work)
    bias.normal_()
    weight.mul_(0.7)
    graph.replay()
    expected, wanted = work()
    assert solution.converged.all()
    torch.testing.assert_close(solution.value, expected.value, rtol=0, atol=2e-5)
    for mine, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-3)
    weight.mul_(10)  # no contraction any more: nobody can raise, but the status says so
    graph.replay()
    assert not solution.converged.all()
    assert torch.isnan(gradients[1]).any()


def test_what_cannot_be_captured_is_named(cuda) -> None:
    there = random_map("cuda", (20_000,), 2, 0.5, torch.float32)
    with pytest.raises(InputError, match="inside a CUDA graph"):
        captured(lambda: solve(LinearMap(there.graph, there.weight.detach(), there.bias.detach())))
    torch.cuda.synchronize()
