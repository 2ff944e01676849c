from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from convergent import ActivatedMap, Auto, ConvergenceError, Direct, Graph, LinearMap, Picard, Status, solve, weights
from convergent.kernels import using
from convergent.solvers import Solver, loop
from convergent.solvers.elimination import eliminates
from elsewhere import Elsewhere
from problems import DOUBLE, random_batch, random_map, true_error


def test_a_budget_that_runs_out_is_an_error_or_a_status() -> None:
    fixed = random_map(random_batch([40, 3], 3, 0), gamma=0.99)
    message = r"did not reach the tolerance: graph 0, head 0 \(contraction 0\.99.*max_iterations=5"
    with pytest.raises(ConvergenceError, match=message):
        solve(fixed, Picard(max_iterations=5))
    solution = solve(fixed, Picard(max_iterations=5, throw=False))
    assert not solution.converged.any()
    assert (solution.status == Status.BUDGET).all()
    assert solution.iterations == 5
    assert (true_error(solution, fixed) <= solution.error_bound).all()


def test_float32_below_its_rounding_is_reported_quickly() -> None:
    fixed = random_map(random_batch([40], 3, 0), gamma=0.9, dtype=torch.float32)
    with pytest.raises(ConvergenceError, match=r"as close as torch.float32 allows; ask for tol >= .*refine=True"):
        solve(fixed, Picard(tol=1e-10))
    solution = solve(fixed, Picard(tol=1e-10, throw=False))
    assert (solution.status == Status.PRECISION).all()
    assert solution.iterations < 1000
    assert (true_error(solution, fixed) <= solution.error_bound).all()


@pytest.mark.parametrize("kind", ["linear", "activated"])
def test_refinement_reaches_it_anyway(kind: str) -> None:
    fixed = random_map(random_batch([40], 3, 0), gamma=0.9, dtype=torch.float32)
    if kind == "activated":
        fixed = ActivatedMap(fixed.graph, fixed.weight, fixed.bias, "tanh")
    solution = solve(fixed, Picard(tol=1e-10, refine=True))
    assert solution.value.dtype == DOUBLE
    assert (solution.error_bound <= 1e-10).all()
    truth = solve(fixed.widened(), Picard(tol=1e-12)).value
    assert (fixed.size(solution.value - truth) <= 1.01e-10).all()


def test_float64_below_its_rounding_is_reported() -> None:
    fixed = random_map(random_batch([40], 3, 0), gamma=0.9)
    solution = solve(fixed, Auto(tol=1e-17, throw=False))
    assert (solution.status == Status.PRECISION).all()
    assert (solution.error_bound < 1e-12).all()


def test_default_tolerance_is_relative_in_float32() -> None:
    """An answer of size 1e4 cannot be held to 1e-6 in float32; the default does not ask for it, an explicit one does."""
    fixed = random_map(random_batch([40], 3, 0), gamma=0.99, dtype=torch.float32)
    large = fixed.with_bias(1e3 * fixed.bias.abs())
    solution = solve(large)
    assert (solution.error_bound <= 1e-6 + 1e-6 * large.size(solution.value)).all()
    with pytest.raises(ConvergenceError, match=r"torch\.float32 allows"):
        solve(large, Auto(tol=1e-6))


def test_overflow_is_reported() -> None:
    graph = Graph(torch.tensor([[0, 1], [1, 0]]), 2)
    fixed = LinearMap(graph, torch.full((2, 1), 0.99), torch.full((2, 1), 3e38))
    with pytest.raises(ConvergenceError, match="left the range of numbers"):
        solve(fixed)


def test_one_slow_graph_in_a_large_batch_is_solved_alone() -> None:
    """Once the others are done, only the slow graph costs: its steps are counted for it alone."""
    gammas = torch.full((60,), 0.1, dtype=DOUBLE)
    gammas[17] = 0.999
    graph = random_batch([10] * 60, 3, 4)
    fixed = random_map(graph, heads=1, gamma=0.5)
    weight = fixed.weight / 0.5 * gammas[graph.batch][graph.row.long()].unsqueeze(1)
    fixed = LinearMap(graph, weight, fixed.bias)
    solution = solve(fixed, Picard())
    assert solution.converged.all()
    others = torch.arange(60) != 17
    assert solution.steps[17] > 1000
    assert solution.steps[others].max() < 20
    assert (true_error(solution, fixed) <= solution.error_bound).all()


def test_an_explicit_tolerance_is_met_without_a_relative_part() -> None:
    fixed = random_map(random_batch([50], 4, 0), gamma=0.9)
    large = fixed.with_bias(1e4 * fixed.bias)
    solution = solve(large, Picard(tol=1e-6))
    assert (solution.error_bound <= 1e-6).all()
    loose = solve(large, Picard(rtol=1e-6))
    assert (loose.error_bound <= 1e-6 * large.size(loose.value)).all()
    assert loose.iterations < solution.iterations


def test_residual_is_the_norm_of_the_defect() -> None:
    for dtype in (torch.float32, DOUBLE):
        fixed = random_map(random_batch([30, 20], 4, 0), gamma=0.9, dtype=dtype)
        solution = solve(fixed)
        torch.testing.assert_close(solution.residual, fixed.size(fixed.defect(solution.value)))


def test_the_choice_is_visible() -> None:
    small, large = random_batch([40, 30], 5, 0), random_batch([4000], 5, 0)
    assert solve(random_map(small, gamma=0.3)).method == "Deflated"
    assert solve(random_map(large, gamma=0.3)).method == "Picard"
    assert "Picard" not in solve(random_map(large, gamma=0.999)).method
    assert "method='Picard'" in repr(solve(random_map(large, gamma=0.3)))


def test_small_graphs_beside_a_large_one() -> None:
    """The small ones are settled in one call, the large one and what is left over go through the loop."""
    graph = random_batch([10, 9000, 25], 2.5, 0)
    assert graph.small is not None
    assert graph.small.tolist() == [True, False, True]
    fixed = random_map(graph, gamma=0.8)
    solution = solve(fixed, Auto(tol=1e-9))
    assert solution.converged.all()
    assert (true_error(solution, fixed) <= solution.error_bound).all()
    alone = solve(fixed.restrict(subset := graph.subset(graph.small), graph.small), Auto(tol=1e-9))
    assert torch.equal(solution.value[subset.nodes], alone.value)


def test_a_small_graph_that_mixes_slowly_is_handed_over() -> None:
    """Two parts that hardly know of each other: their nodes are close, yet deflated steps do not take out two constants."""
    halves = random_batch([150, 150], 6, 0)
    links = torch.tensor([[0, 150], [150, 0]])
    graph = Graph(torch.cat([torch.stack([halves.row, halves.column]), links], 1), 300)
    fixed = random_map(graph, gamma=0.9998)
    assert not eliminates(fixed)
    solution = solve(fixed, Auto(tol=1e-6))
    assert solution.iterations > 1
    assert solution.method != "Deflated"
    assert (true_error(solution, fixed) <= solution.error_bound).all()


def test_an_error_names_the_graph_of_the_batch() -> None:
    fixed = random_map(random_batch([10, 20, 30], 3, 0), gamma=0.9, dtype=torch.float32)
    scale = torch.tensor([1.0, 1.0, 1e4])[fixed.graph.batch]
    large = fixed.with_bias(fixed.bias * scale[:, None])
    with pytest.raises(ConvergenceError, match="1 of 3 graphs did not reach the tolerance: graph 2, head 0") as caught:
        solve(large, Auto(tol=1e-5))
    assert caught.value.solution.converged.tolist() == [True, True, False]


# --- where things are ---

METHODS: dict[str, Solver] = {
    **{name: kind() for name, kind in Solver.methods.items()},
    "tight": Picard(certify="tight"),
    "budget": Picard(max_iterations=3, throw=False),
    "refined": Auto(refine=True),
}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Elsewhere]:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    with using("reference"), Elsewhere() as mode:
        yield mode


def on_device(mode: Elsewhere, graph: Graph, kind: type[LinearMap | ActivatedMap]) -> LinearMap | ActivatedMap:
    edges, batch = torch.stack([graph.row, graph.column]).long(), graph.batch
    there = Graph(mode.there(edges), graph.num_nodes, batch=mode.there(batch))
    logits, bias = (mode.there(torch.randn(rows, 2)) for rows in (graph.num_edges, graph.num_nodes))
    return kind(there, mode.there(weights.softmax(there, logits, 0.9)).requires_grad_(), bias)


@pytest.mark.parametrize("decided", ["on the host", "on the device"])
@pytest.mark.parametrize("sizes", [[300], [30, 0, 40, 5]], ids=str)
@pytest.mark.parametrize("name", METHODS)
def test_the_host_and_the_device_are_not_mixed(name, sizes, decided, elsewhere, monkeypatch) -> None:
    solver = METHODS[name]
    monkeypatch.setattr(loop, "HOST", 1 << 16 if decided == "on the host" else 0)
    monkeypatch.setattr(type(solver), "settles", 0)  # all of it in the loop
    monkeypatch.setattr(Auto, "settling", lambda *_: 0)
    for kind in (LinearMap,) if solver.only_linear else (LinearMap, ActivatedMap):
        fixed = on_device(elsewhere, random_batch(sizes, 3, 0), kind)
        for x0 in (None, elsewhere.there(torch.randn(sum(sizes), 2))):
            solution = solve(fixed, solver, x0)
            *parts, _ = solution.tensors()  # the last is made once for all solves
            assert all(elsewhere.is_there(part) for part in parts)
            assert torch.autograd.grad(solution.value.sum(), fixed.weight)[0].isfinite().all()
            assert solution.converged.all() or solver.max_iterations is not None


def test_whoever_mixes_them_is_told(elsewhere: Elsewhere) -> None:
    here = torch.ones(3)
    there = elsewhere.there(here)
    assert (there + 1).device.type == "cuda"
    assert (there + here.to(there.device)).is_cuda
    assert not there.cpu().is_cuda
    with pytest.raises(RuntimeError, match="add: tensors on the host and elsewhere"):
        _ = there + here


def test_steps_that_are_enough_where_rows_sum_to_one() -> None:
    """There is such a number: without it plain steps went round in rounding errors for ever, at a tolerance beyond the dtype."""
    star = Graph(torch.tensor([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]]), num_nodes=4)
    weight = torch.tensor([[-879.0], [1154.0], [-15.0], [2048.0], [-1536.0], [0.0]]) / 2048
    fixed = LinearMap(star, weight, torch.full((4, 1), 3.1e-42))
    assert float(fixed.contraction) >= 1
    state = loop._State.begin(Picard(tol=1e-50, throw=False, certify="tight"), fixed, None, None)
    assert 1 < state.certain < 1e4
    solution = solve(fixed, Direct(tol=1e-63, throw=False, certify="tight", refine=True))
    assert (solution.status == Status.PRECISION).all()
    easy = LinearMap(star, weight, torch.ones(4, 1))
    state = loop._State.begin(Picard(tol=1e-4), easy, None, None)
    assert solve(easy, Picard(tol=1e-4)).iterations <= state.certain
