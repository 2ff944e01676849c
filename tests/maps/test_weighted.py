"""Bad input, at the door of both maps."""

from __future__ import annotations

import pytest
import torch

from convergent import ActivatedMap, ContractionError, Graph, InputError, LinearMap

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
    with pytest.raises(ContractionError, match=rf"but got {abs(factor):g}.* in graph 0, head 2 \(1 of 3 graphs and heads"):
        kind(GRAPH, weight, BIAS)


def test_unknown_activation_is_named() -> None:
    with pytest.raises(InputError, match=r"activation: expected one of identity, relu.* but got 'swish'"):
        ActivatedMap(GRAPH, WEIGHT, BIAS, "swish")


def test_half_precision_is_solved_in_float32() -> None:
    assert LinearMap(GRAPH, WEIGHT.bfloat16(), BIAS.bfloat16()).dtype == torch.float32
