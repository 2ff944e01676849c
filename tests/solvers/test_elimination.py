"""Elimination as a method: rows near one, shared factors, and what it hands over."""

from __future__ import annotations

import gc

import pytest
import torch

from convergent import Auto, BiCGStab, Direct, Elimination, Graph, Implicit, LinearMap, Multigrid, solve
from convergent import factors as kept
from convergent.errors import ContractionError, InputError
from convergent.solvers import elimination
from problems import random_batch, random_map


def ladder(length: int, leak: float, heads: int = 2, copies: int = 2) -> LinearMap:
    """Paths with one pinned end each, whose other rows sum to 1 - leak."""
    nodes = torch.arange(1, length)
    right = torch.stack([nodes[:-1], nodes[1:]])
    one = torch.cat([right, torch.stack([nodes, nodes - 1])], 1)
    edges = torch.cat([one + length * copy for copy in range(copies)], 1)
    row = edges[0]
    degree = torch.bincount(row, minlength=length * copies)
    weight = ((1 - leak) / degree[row].double()).unsqueeze(1).repeat(1, heads)
    graph = Graph(edges, num_nodes=length * copies, batch=torch.arange(copies).repeat_interleave(length))
    generator = torch.Generator().manual_seed(0)
    bias = torch.rand(length * copies, heads, dtype=torch.float64, generator=generator)
    bias = torch.where((torch.arange(length * copies) % length == 0)[:, None], bias, 0.0)
    return LinearMap(graph, weight.requires_grad_(), bias)


def dense(fixed: LinearMap) -> torch.Tensor:
    system = torch.eye(fixed.graph.num_nodes, dtype=torch.float64) - fixed.as_dense()
    return torch.linalg.solve(system, fixed.bias.T.unsqueeze(2)).squeeze(2).T


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for every factorisation."""
    made: list[int] = []
    factor = kept.factor

    def count(*arguments):
        made.append(len(made))
        return factor(*arguments)

    monkeypatch.setattr(kept, "factor", count)
    return made


@pytest.mark.parametrize("leak", [1e-4, 1e-8, 1e-12])
@pytest.mark.parametrize("certify", ["auto", "plain", "tight"])
def test_answers_near_one(leak: float, certify: str) -> None:
    fixed = ladder(60, leak)
    solution = solve(fixed, Auto(tol=1e-6, throw=False, certify=certify))
    assert solution.method == "Elimination"
    error = fixed.size((solution.value - dense(fixed)).detach())
    assert (error <= solution.error_bound).all()
    if certify != "plain":
        assert solution.converged.all()


def test_one_factorisation_serves_answer_adjoint_and_certificate(counted: list[int]) -> None:
    fixed = ladder(60, 1e-9)
    adjoints = []
    solution = solve(fixed, Auto(tol=1e-6, certify="tight"), gradient=Implicit(on_adjoint=adjoints.append))
    (gradient,) = torch.autograd.grad(solution.value.square().sum(), fixed.weight)
    assert len(counted) == 1
    assert adjoints[0].converged.all()
    (expected,) = torch.autograd.grad(dense(fixed).square().sum(), fixed.weight)
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-6)


def test_weights_that_changed_are_factorised_again(counted: list[int]) -> None:
    fixed = ladder(30, 1e-6)
    first = solve(fixed, Elimination(tol=1e-6)).value
    with torch.no_grad():
        fixed.weight.mul_(0.5)
    again = solve(fixed, Elimination(tol=1e-6))
    assert len(counted) == 2
    assert (fixed.size((again.value - dense(fixed)).detach()) <= again.error_bound).all()
    assert not torch.allclose(first, again.value)


def test_factors_go_with_their_weights() -> None:
    fixed = ladder(30, 1e-6)
    solve(fixed, Elimination(tol=1e-6))
    before = len(kept._known)
    del fixed
    gc.collect()
    assert len(kept._known) < before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_small_map(dtype: torch.dtype) -> None:
    fixed = random_map(random_batch([10, 1, 20, 0, 30], 3, 0), gamma=0.9, dtype=dtype)
    solution = solve(fixed, Elimination(tol=1e-4))
    assert solution.converged.all()
    assert solution.method == "Elimination"
    wide = LinearMap(fixed.graph, fixed.weight.double(), fixed.bias.double())
    assert (fixed.size(solution.value.double() - dense(wide)) <= solution.error_bound).all()


def test_a_graph_that_fills_up_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST", 100.0)
    fixed = ladder(40, 1e-4)
    assert not elimination.eliminates(fixed)
    solution = solve(fixed, Auto(tol=1e-6))
    assert "Elimination" not in solution.method
    assert solution.converged.all()


@pytest.mark.parametrize("certify", ["auto", "tight"])
@pytest.mark.parametrize("solver", [Auto, Elimination, Direct, BiCGStab, Multigrid])
def test_rows_that_sum_to_one(solver, certify: str) -> None:
    fixed = ladder(40, 0.0)
    solution = solve(fixed, solver(tol=1e-6, certify=certify))
    assert solution.converged.all()
    assert (fixed.size((solution.value - dense(fixed)).detach()) <= solution.error_bound).all()
    (gradient,) = torch.autograd.grad(solution.value.square().sum(), fixed.weight)
    (expected,) = torch.autograd.grad(dense(fixed).square().sum(), fixed.weight)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4)


def test_the_plain_certificate_is_refused_where_it_has_no_bound() -> None:
    with pytest.raises(InputError, match='certify: expected "auto" or "tight", as rows sum to one or more, but got \'plain\''):
        solve(ladder(40, 0.0), Auto(certify="plain"))


def test_rows_that_exceed_one_where_others_lose_more() -> None:
    """Katz centrality and the like: |W| has a spectral radius below one, its rows do not all sum to less."""
    graph = Graph(torch.tensor([[0, 0, 1, 2], [1, 2, 0, 0]]), num_nodes=3)
    weight = torch.tensor([[0.9], [-0.8], [0.3], [0.4]], dtype=torch.float64)
    fixed = LinearMap(graph, weight, torch.ones(3, 1, dtype=torch.float64))
    assert float(fixed.contraction) > 1
    solution = solve(fixed, Auto(tol=1e-9))
    assert solution.converged.all()
    assert (fixed.size(solution.value - dense(fixed)) <= solution.error_bound).all()


def test_a_class_of_nodes_that_loses_nothing_is_named() -> None:
    graph = Graph(torch.tensor([[0, 1, 2, 3, 3], [1, 0, 3, 2, 0]]), num_nodes=5, batch=torch.tensor([0, 0, 0, 0, 0]))
    weight = torch.tensor([[1.0], [1.0], [1.0], [0.5], [0.4]], dtype=torch.float64)
    with pytest.raises(ContractionError, match=r"no row that sums to less than one is reached from 2 of its nodes \(0, 1\)"):
        LinearMap(graph, weight, torch.ones(5, 1, dtype=torch.float64))
    pair = Graph(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    with pytest.raises(ContractionError, match="rows that sum to more than one outweigh"):
        LinearMap(pair, torch.tensor([[2.0], [0.8]], dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64))


# --- on a GPU ---


def on_card(fixed: LinearMap, dtype: torch.dtype = torch.float64) -> LinearMap:
    weight = fixed.weight.detach().to(dtype).cuda().requires_grad_()
    return LinearMap(fixed.graph.to("cuda"), weight, fixed.bias.to(dtype).cuda())


def agrees(there: LinearMap, **settings) -> str:
    """Solve and differentiate on the card, against dense elimination; the method that was used."""
    here = LinearMap(there.graph.to("cpu"), there.weight.detach().double().cpu().requires_grad_(), there.bias.double().cpu())
    adjoints = []
    solution = solve(there, Auto(**settings), gradient=Implicit(on_adjoint=adjoints.append))
    expected = dense(here)
    assert solution.converged.all()
    assert (here.size((solution.value.double().cpu() - expected).detach()) <= solution.error_bound.cpu()).all()
    (gradient,) = torch.autograd.grad(solution.value.square().sum(), there.weight)
    (wanted,) = torch.autograd.grad(expected.square().sum(), here.weight)
    assert adjoints[0].converged.all()
    scale = float(wanted.abs().max())
    loss = 1e-3 if there.dtype == torch.float32 else 1e-6
    torch.testing.assert_close(gradient.double().cpu(), wanted, rtol=loss, atol=loss * scale)
    return solution.method


@pytest.mark.cuda
@pytest.mark.parametrize("leak", [1e-4, 1e-8, 1e-12, 0.0])
@pytest.mark.parametrize("certify", ["auto", "tight"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_near_one_on_a_gpu(leak: float, certify: str, dtype: torch.dtype) -> None:
    fixed = on_card(ladder(60, leak), dtype)
    if dtype == torch.float32 and float(fixed.contraction.max()) > 1 and leak == 0:
        pytest.skip("rows that rounding takes beyond one")
    assert agrees(fixed, rtol=1e-4 if dtype == torch.float32 else 1e-7, certify=certify) in ("Elimination", "Deflated")


@pytest.mark.cuda
def test_signs_a_large_graph_and_easy_graphs_among_hard_ones_on_a_gpu() -> None:
    hard = ladder(300, 1e-7, copies=3)
    signs = torch.where(torch.arange(hard.weight.shape[0]) % 3 == 0, -1.0, 1.0).unsqueeze(1)
    assert agrees(on_card(LinearMap(hard.graph, hard.weight.detach() * signs, hard.bias)), tol=1e-7) in ("Elimination", "Deflated")
    easy = hard.weight.detach().clone()
    easy[hard.graph.batch[hard.graph.row.long()] == 1] *= 0.5
    assert agrees(on_card(LinearMap(hard.graph, easy, hard.bias)), rtol=1e-8) == "Elimination"
    assert "Elimination" in agrees(on_card(ladder(3000, 1e-7, copies=1)), rtol=1e-7)


@pytest.mark.cuda
def test_well_connected_graphs_near_one_take_few_steps_on_a_gpu() -> None:
    for sizes in ([200] * 20, [2000]):  # in one call, and in the loop
        assert agrees(on_card(random_map(random_batch(sizes, 16, 0), gamma=0.9999)), rtol=1e-6) == "Deflated"


@pytest.mark.cuda
def test_a_class_that_loses_nothing_is_named_on_a_gpu() -> None:
    graph = Graph(torch.tensor([[0, 1, 2, 3, 3], [1, 0, 3, 2, 0]]), num_nodes=5, batch=torch.zeros(5, dtype=torch.long)).to("cuda")
    weight = torch.tensor([[1.0], [1.0], [1.0], [0.5], [0.4]], dtype=torch.float64, device="cuda")
    fixed = LinearMap(graph, weight, torch.ones(5, 1, dtype=torch.float64, device="cuda"))
    with pytest.raises(ContractionError, match=r"reached from 2 of its nodes \(0, 1\)"):
        solve(fixed)


@pytest.mark.parametrize("heads", [1, 2])
def test_forward_mode(heads: int) -> None:
    graph = Graph(torch.tensor([[1, 1, 2, 2], [0, 2, 1, 3]]), num_nodes=4)
    weight, bias = torch.full((4, heads), 0.5, dtype=torch.float64), torch.ones(4, heads, dtype=torch.float64)
    for _ in range(2):  # without factors, and with them
        with torch.autograd.forward_ad.dual_level():
            moved = torch.autograd.forward_ad.make_dual(bias, torch.ones_like(bias))
            dual = solve(LinearMap(graph, weight, moved), Elimination(tol=1e-9)).value
            value, tangent = torch.autograd.forward_ad.unpack_dual(dual)
        torch.testing.assert_close(tangent, value)
