from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from convergent import (
    GMRES,
    ActivatedMap,
    Anderson,
    Auto,
    BiCGStab,
    Deflated,
    Direct,
    Graph,
    Implicit,
    LinearMap,
    Multigrid,
    OneStep,
    Picard,
    Solution,
    Unrolled,
    solve,
    weights,
)
from problems import DOUBLE, exact, random_batch

LINEAR = [Picard, Anderson, BiCGStab, GMRES, Direct, Deflated, Multigrid, Auto]
GENERAL = [Picard, Anderson, Auto]
INDEX = torch.tensor([[0, 0, 1, 1, 2, 3, 3, 4], [1, 1, 2, 1, 0, 4, 3, 3]])  # parallel edges, self loops, an isolated node
GRAPH = Graph(INDEX, 6, batch=torch.tensor([0, 0, 0, 1, 1, 1]))


def inputs(heads: int = 2, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(GRAPH.num_edges, heads, generator=draw, dtype=dtype, requires_grad=True)
    return logits, torch.randn(GRAPH.num_nodes, heads, generator=draw, dtype=dtype, requires_grad=True)


def fixed_point(solver, activation=None, gradient=None, gamma: float | Tensor = 0.8):
    def function(logits: Tensor, bias: Tensor) -> Tensor:
        weight = weights.signed(GRAPH, logits, gamma)
        fixed = ActivatedMap(GRAPH, weight, bias, activation) if activation else LinearMap(GRAPH, weight, bias)
        return solve(fixed, solver, gradient=gradient).value

    return function


COMBINATIONS = [*itertools.product([None], LINEAR), *itertools.product(["tanh", "softsign", "leaky_relu"], GENERAL)]


@pytest.mark.parametrize(("activation", "method"), COMBINATIONS)
def test_first_and_second_order_and_forward_mode(activation, method) -> None:
    function = fixed_point(method(tol=1e-12), activation)
    assert gradcheck(function, inputs(), check_forward_ad=True, fast_mode=True)
    assert gradgradcheck(function, inputs(), check_fwd_over_rev=True, fast_mode=True)


@pytest.mark.parametrize("activation", [None, "silu"])
def test_every_entry_of_the_jacobian(activation) -> None:
    function = fixed_point(Auto(tol=1e-12), activation)
    assert gradcheck(function, inputs(heads=1), check_forward_ad=True)
    assert gradgradcheck(function, inputs(heads=1))


@pytest.mark.parametrize("activation", [None, "tanh"])
def test_unrolled_gradients_are_gradients(activation) -> None:
    function = fixed_point(Picard(tol=1e-12), activation, Unrolled())
    assert gradcheck(function, inputs(), check_forward_ad=True, fast_mode=True)
    assert gradgradcheck(function, inputs(), fast_mode=True)


def test_third_order() -> None:
    logits, bias = inputs(heads=1)

    def energy(bias):
        return fixed_point(Auto(tol=1e-12), "tanh")(logits.detach(), bias).pow(2).sum()

    def second(bias):
        (first,) = torch.autograd.grad(energy(bias), bias, create_graph=True)
        (again,) = torch.autograd.grad(first.sum(), bias, create_graph=True)
        return again

    assert gradcheck(second, bias, fast_mode=True)


def test_implicit_agrees_with_the_dense_inverse() -> None:
    logits, bias = inputs()
    weight = weights.signed(GRAPH, logits, 0.8)
    grad = torch.randn(6, 2, dtype=DOUBLE)
    found = torch.autograd.grad(solve(LinearMap(GRAPH, weight, bias), Auto(tol=1e-12)).value, (weight, bias), grad)
    matrix = torch.eye(6, dtype=DOUBLE) - LinearMap(GRAPH, weight, bias).as_dense()
    dense = torch.linalg.solve(matrix, bias.T.unsqueeze(-1)).squeeze(-1).T
    torch.testing.assert_close(found, torch.autograd.grad(dense, (weight, bias), grad), atol=1e-10, rtol=0)


def test_gamma_learns_through_the_weight() -> None:
    logits, bias = inputs()
    gamma = torch.full((2,), 0.6, dtype=DOUBLE, requires_grad=True)

    def function(gamma):
        return fixed_point(Auto(tol=1e-12), gamma=gamma)(logits.detach(), bias.detach())

    assert gradcheck(function, gamma)


def test_transforms_of_torch_func() -> None:
    logits, bias = (value.detach() for value in inputs())
    function = fixed_point(Auto(tol=1e-12), "tanh")
    tangents = (torch.randn_like(logits), torch.randn_like(bias))
    _, tangent = torch.func.jvp(function, (logits, bias), tangents)
    step = 1e-6
    moved = [function(*(p + sign * step * t for p, t in zip((logits, bias), tangents, strict=True))) for sign in (1, -1)]
    torch.testing.assert_close(tangent, (moved[0] - moved[1]) / (2 * step), atol=1e-7, rtol=1e-6)
    gradient = torch.func.grad(lambda b: function(logits, b).sum())(bias)
    expected = torch.autograd.grad(function(logits, bias.requires_grad_()).sum(), bias)[0]
    torch.testing.assert_close(gradient, expected)


def test_a_transform_may_be_the_first_to_need_the_transpose() -> None:
    graph = random_batch([9], 2, 1)
    logits = torch.randn(graph.num_edges, 1, dtype=DOUBLE)

    def total(bias):
        return solve(LinearMap(graph, weights.softmax(graph, logits, 0.9), bias), Auto(tol=1e-10)).value.sum()

    bias = torch.zeros(9, 1, dtype=DOUBLE)
    gradient = torch.func.grad(total)(bias)
    torch.testing.assert_close(torch.autograd.grad(total(bias.requires_grad_()), bias)[0], gradient)


def test_one_step_is_the_gradient_of_one_application() -> None:
    logits, bias = inputs()
    weight = weights.signed(GRAPH, logits, 0.8)
    fixed = LinearMap(GRAPH, weight, bias)
    solution = solve(fixed, Auto(tol=1e-10), gradient=OneStep())
    (gradient,) = torch.autograd.grad(solution.value.sum(), bias)
    assert (gradient == 1).all()
    error = fixed.detached().size(torch.from_numpy((solution.value.detach().numpy() - exact(fixed)).astype("float64")))
    assert (error <= solution.error_bound).all()


def test_unrolled_takes_as_many_steps_as_asked() -> None:
    logits, bias = inputs()
    fixed = LinearMap(GRAPH, weights.signed(GRAPH, logits, 0.8), bias)
    torch.testing.assert_close(solve(fixed, gradient=Unrolled(steps=2)).value, fixed(fixed(torch.zeros_like(bias))))


def test_adjoint_has_a_certificate_in_the_one_norm() -> None:
    graph = random_batch([20, 0, 30], 4, 1)
    logits = torch.randn(graph.num_edges, 2, dtype=DOUBLE)
    bias = torch.randn(50, 2, dtype=DOUBLE, requires_grad=True)
    fixed = LinearMap(graph, weights.softmax(graph, logits, 0.95), bias)
    seen: list[Solution] = []
    solution = solve(fixed, Auto(tol=1e-7), gradient=Implicit(on_adjoint=seen.append))
    grad = torch.randn(50, 2, dtype=DOUBLE)
    (found,) = torch.autograd.grad(solution.value, bias, grad)
    adjoint = fixed.detached().transpose(grad)
    error = adjoint.size(torch.from_numpy((found.numpy() - exact(adjoint)).astype("float64")))  # sums over the nodes
    assert (error <= seen[0].error_bound).all()
    assert (seen[0].error_bound <= 1e-7 * adjoint.size(found)).all()
    assert seen[0].converged.all()


def test_a_tight_forward_solve_has_a_tight_adjoint() -> None:
    """A line with a leak of 1e-12: 1 / (1 - c) certifies nothing, neither forward nor backward."""
    forward = torch.stack([torch.arange(99), torch.arange(1, 100)])
    graph = Graph(torch.cat([forward, forward.flip(0)], 1), 100)
    share = (1 - 1e-12) / graph.out_degree.to(DOUBLE)[graph.row.long()].unsqueeze(1)
    share[(graph.row == 0) | (graph.row == 99)] = 0
    bias = torch.zeros(100, 1, dtype=DOUBLE)
    bias[0] = 1
    seen: list[Solution] = []
    solution = solve(
        LinearMap(graph, share.requires_grad_(), bias), Auto(tol=1e-7, certify="tight"), gradient=Implicit(None, seen.append)
    )
    solution.value.sum().backward()
    assert solution.error_bound.item() <= 1e-7
    assert seen[0].converged.all()


def test_adjoint_takes_a_solver_of_its_own() -> None:
    logits, bias = inputs()
    seen: list[Solution] = []
    gradient = Implicit(Direct(rtol=1e-3), seen.append)
    fixed_point(Picard(), gradient=gradient)(logits, bias).sum().backward()
    assert [one.method for one in seen] == ["Direct"]


@pytest.mark.parametrize("activation", [None, "tanh"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiles_without_a_break(activation, backend: str) -> None:
    logits, bias = inputs(dtype=torch.float32)
    function = fixed_point(Auto(), activation)
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    expected, found = function(logits, bias), compiled(logits, bias)
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, (logits, bias), grad), torch.autograd.grad(expected, (logits, bias), grad)
    )


def test_compiled_solutions_keep_their_certificate_and_their_errors() -> None:
    graph = GRAPH

    def function(weight, bias):
        return solve(LinearMap(graph, weight, bias))

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    weight, bias = torch.full((8, 2), 0.2), torch.ones(6, 2)
    solution = compiled(weight, bias)
    assert solution.converged.all()
    assert (solution.method, solution.iterations > 0) == ("Deflated", True)
    with pytest.raises(Exception, match="in graph 0, head 0"):
        compiled(weight * 4, bias)


def test_autocast_solves_in_float32() -> None:
    features = torch.randn(GRAPH.num_edges, 5)
    bias = torch.randn(6, 2, requires_grad=True)
    layer = torch.nn.Linear(5, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = layer(features)
        assert logits.dtype == torch.bfloat16
        solution = solve(LinearMap(GRAPH, weights.signed(GRAPH, logits), bias.to(logits.dtype)), GMRES())
    assert solution.value.dtype == torch.float32
    assert solution.converged.all()
    solution.value.sum().backward()
    assert layer.weight.grad is not None
    assert torch.isfinite(layer.weight.grad).all()


def test_without_gradients_nothing_is_recorded() -> None:
    logits, bias = inputs()
    with torch.no_grad():
        assert not fixed_point(Auto())(logits, bias).requires_grad
    assert not fixed_point(Auto())(logits.detach(), bias.detach()).requires_grad
    only_bias = fixed_point(Auto())(logits.detach(), bias)
    only_bias.sum().backward()
    assert bias.grad is not None
    assert logits.grad is None


def test_memory_does_not_grow_with_iterations() -> None:
    """What autograd keeps for backward is the same at 20 and at 2,000 steps; unrolled, it grows with every step."""

    def kept(gradient, gamma: float) -> int:
        total = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal total
            total += tensor.numel()
            return tensor

        graph = random_batch([30], 3, 0)
        logits = torch.zeros(graph.num_edges, 1, dtype=DOUBLE, requires_grad=True)
        fixed = LinearMap(graph, weights.softmax(graph, logits, gamma), torch.ones(30, 1, dtype=DOUBLE))
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            solve(fixed, Picard(), gradient=gradient)
        return total

    assert kept(Implicit(), 0.5) == kept(Implicit(), 0.99)
    assert kept(Unrolled(), 0.9) > 4 * kept(Unrolled(), 0.5)


def test_gradients_that_are_not_finite_pass_through() -> None:
    """A loss scaler probes with infinite gradients; they come out not finite, without an error."""
    logits, bias = inputs()
    value = fixed_point(Auto())(logits, bias)
    gradients = torch.autograd.grad(value, (logits, bias), torch.full_like(value, torch.inf))
    assert not any(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("size", [1e-30, 1e-38, 1e-40, 1e-44])
@pytest.mark.parametrize("solver", [Auto, Picard])
def test_a_gradient_may_be_as_small_as_it_likes(solver, size) -> None:
    logits, bias = inputs(dtype=torch.float32)
    value = fixed_point(solver())(logits, bias)
    gradients = torch.autograd.grad(value, (logits, bias), torch.full_like(value, size))
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
