"""Bad input, at the door of both maps."""

from __future__ import annotations

import pytest
import torch

from convergent import ActivatedMap, ContractionError, Graph, InputError, LinearMap, Multigrid, Picard, solve

GRAPH = Graph(torch.tensor([[0, 1], [1, 0]]), 2)
WEIGHT, BIAS = torch.full((2, 3), 0.5), torch.zeros(2, 3)
NAN = torch.full((2, 3), torch.nan)


@pytest.mark.parametrize("kind", [LinearMap, ActivatedMap])
@pytest.mark.parametrize(
    ("weight", "bias", "message"),
    [
        (WEIGHT[:1], BIAS, r"weight: expected shape \[2, heads\], but got \[1, 3\]"),
        (WEIGHT[:, 0], BIAS, r"weight: expected shape \[2, heads\], but got \[2\]"),
        (WEIGHT, BIAS[:, :2], r"bias: expected shape \[2, 3\], but got \[2, 2\]"),
        (WEIGHT, BIAS.double(), "bias: expected torch.float32, as the weight has, but got torch.float64"),
        (WEIGHT.long(), BIAS, "weight: expected a floating point dtype, but got torch.int64"),
        (None, BIAS, r"weight: expected a tensor of shape \[2, heads\], but got NoneType"),
        (NAN, BIAS, "weight: expected finite numbers, but got NaN in graph 0, head 0"),
        (WEIGHT, NAN, r"bias: expected finite numbers, but got nan at \[0, 0\]"),
        (WEIGHT, BIAS + torch.inf, r"bias: expected finite numbers, but got inf at \[0, 0\]"),
        (WEIGHT.to("meta"), BIAS, "weight: expected a tensor on cpu, but got one on meta"),
    ],
)
def test_bad_input_is_named(kind, weight, bias, message: str) -> None:
    with pytest.raises(InputError, match=message):
        kind(GRAPH, weight, bias)


@pytest.mark.parametrize("kind", [LinearMap, ActivatedMap])
@pytest.mark.parametrize("factor", [1.0, -1.0, 1.5, torch.inf])
def test_a_map_that_does_not_contract_names_graph_head_and_factor(kind, factor: float) -> None:
    weight = WEIGHT.clone()
    weight[1, 2] = factor
    reason = rf"but got {abs(factor):g}.* in graph 0, head 2 \(1 of 3 graphs and heads"
    if kind is LinearMap and factor != torch.inf:  # rows may sum to more than one where others lose it: here they do
        assert float(LinearMap(GRAPH, weight, BIAS).contraction.max()) >= 1
        weight[:, 2] = factor
        reason = "in graph 0, head 2, no row that sums to less than one is reached from 2 of its nodes"
    with pytest.raises(ContractionError, match=reason):
        kind(GRAPH, weight, BIAS)


def test_unknown_activation_is_named() -> None:
    with pytest.raises(InputError, match=r"activation: expected one of identity, relu.* but got 'swish'"):
        ActivatedMap(GRAPH, WEIGHT, BIAS, "swish")


def test_half_precision_is_solved_in_float32() -> None:
    assert LinearMap(GRAPH, WEIGHT.bfloat16(), BIAS.bfloat16()).dtype == torch.float32


# --- changed in place ---


@pytest.mark.parametrize("kind", [LinearMap, ActivatedMap])
def test_weights_that_are_changed_in_place_are_measured_again(kind) -> None:
    weight, bias = WEIGHT.double().clone(), torch.ones(2, 3, dtype=torch.float64)
    fixed = kind(GRAPH, weight, bias)
    derived = [fixed, fixed.detached(), fixed.transpose(bias, at=bias)] + ([fixed.with_bias(bias)] if kind is LinearMap else [])
    solve(fixed)
    weight.mul_(1.8)
    for each in derived if kind is LinearMap else derived[:2]:
        torch.testing.assert_close(each.contraction, torch.full((1, 3), 0.9, dtype=torch.float64))
        solution = solve(each)
        torch.testing.assert_close(solution.value, torch.full((2, 3), 10.0, dtype=torch.float64), rtol=0, atol=1e-6)
        assert (solution.error_bound <= 1e-6).all()
        assert solution.converged.all()
    weight.mul_(2)
    for each in derived if kind is LinearMap else derived[:2]:
        with pytest.raises(ContractionError, match=r"but got 1\.8|no row that sums to less than one"):
            solve(each)


def test_an_optimizer_changes_them_in_place() -> None:
    weight, bias = torch.nn.Parameter(WEIGHT.clone()), torch.nn.Parameter(torch.ones(2, 3))
    fixed, optimizer = LinearMap(GRAPH, weight, bias), torch.optim.SGD([weight, bias], 0.01)
    for _ in range(3):
        optimizer.zero_grad()
        value = solve(fixed).value
        value.sum().backward()
        optimizer.step()
        expected = solve(LinearMap(GRAPH, weight.detach().clone(), bias.detach().clone()))
        found = solve(fixed)
        torch.testing.assert_close(found.value, expected.value)
        torch.testing.assert_close(found.error_bound, expected.error_bound)


def test_a_bias_that_is_changed_in_place_is_looked_at_again() -> None:
    bias = torch.ones(2, 3, dtype=torch.float64)
    fixed = LinearMap(GRAPH, WEIGHT.double(), bias)
    first = fixed.magnitude()
    bias.mul_(7)
    torch.testing.assert_close(fixed.magnitude(), 7 * first)
    bias[1, 2] = torch.nan
    with pytest.raises(InputError, match=r"bias: expected finite numbers, but got nan at \[1, 2\]"):
        solve(fixed)


def test_inference_mode_has_no_versions_to_count() -> None:
    with torch.inference_mode():
        weight, bias = WEIGHT.clone(), BIAS + 1
        fixed = LinearMap(GRAPH, weight, bias)
        for solver in (None, Picard(), Multigrid()):
            solution = solve(fixed, solver)
            torch.testing.assert_close(solution.value, torch.full((2, 3), 2.0), rtol=0, atol=1e-5)
    assert solve(fixed).converged.all()


def test_a_compiled_solve_sees_the_weights_of_its_call() -> None:
    weight, bias = WEIGHT.clone(), torch.ones(2, 3)
    fixed = LinearMap(GRAPH, weight, bias)
    compiled = torch.compile(lambda: solve(fixed), fullgraph=True, backend="aot_eager")
    compiled()
    weight.mul_(1.8)
    solution = compiled()
    assert (solution.error_bound >= (solution.value - 10).abs().amax(0)).all()
    assert solution.converged.all()
    assert (solution.error_bound <= 1.1e-5).all()
    weight.mul_(2)
    with pytest.raises(Exception, match="lose something from every node"):
        compiled()


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev])
def test_a_map_from_outside_in_a_transform(transform) -> None:
    weight = WEIGHT.double().clone()
    fixed = LinearMap(GRAPH, weight, BIAS.double())

    def total(bias: torch.Tensor) -> torch.Tensor:
        return solve(fixed.with_bias(bias), Picard(tol=1e-12)).value.sum()

    for factor in (1.0, 1.8):
        weight.copy_(factor * WEIGHT.double())
        torch.testing.assert_close(transform(total)(BIAS.double()), torch.full((2, 3), 1 / (1 - 0.5 * factor), dtype=torch.float64))
