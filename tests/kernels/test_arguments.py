"""Tensors that kernels must never see, at every door: each is refused by name, and odd strides give the same answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from convergent import ActivatedMap, Graph, InputError, LinearMap, operations, solve, weights
from convergent.baselines import GNN, IGNN, SSE
from convergent.kernels import Accuracy
from convergent.nn import AttentionGN, ConvergentConv, ConvergentGraphSolver, GNLayer
from convergent.nn.model import pool
from convergent.nn.scaler import ScaledModel, Scaler
from problems import random_batch

GRAPH = random_batch([5, 4], 3, 0)
NODES, EDGES, GRAPHS, HEADS = GRAPH.num_nodes, GRAPH.num_edges, GRAPH.num_graphs, 3
KEEP = torch.tensor([True, False])


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


WEIGHT, BIAS, X = 0.05 * draw(EDGES, HEADS), draw(NODES, HEADS, seed=1), draw(NODES, HEADS, seed=2)
LINEAR, ACTIVATED = LinearMap(GRAPH, WEIGHT, BIAS), ActivatedMap(GRAPH, WEIGHT, BIAS, "tanh")
ACCURACY = Accuracy(LINEAR.contraction, None, 1e-5, 0.0, 1e-15, False, 100)
GOAL = torch.full((GRAPHS, HEADS), 1e-5, dtype=torch.float64)


@dataclass
class Door:
    """A call, and its tensors by name."""

    call: Callable[..., Any]
    tensors: dict[str, Tensor]

    def outputs(self, **changed: Any) -> list[Tensor]:
        return list(flat(self.call(**{**self.tensors, **changed})))


def door(call: Callable[..., Any], **tensors: Tensor) -> Door:
    return Door(call, tensors)


def flat(value: Any) -> Iterator[Tensor]:
    """The tensors of an answer."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, LinearMap | ActivatedMap):
        yield from (*value.parameters(), value.contraction)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from flat(part)
    elif hasattr(value, "tensors"):
        yield from value.tensors()[:4]


def of_map(kind: str, fixed: LinearMap | ActivatedMap) -> dict[str, Door]:
    """Every method that takes a tensor."""
    subset = GRAPH.subset(KEEP)
    settings = fixed.settings()
    restored = type(fixed).restore
    doors = {
        "new": door(
            lambda weight, bias: type(fixed)(GRAPH, weight, bias, *([settings] * bool(settings))), weight=WEIGHT, bias=BIAS
        ),
        "__call__": door(fixed.__call__, x=X),
        "defect": door(fixed.defect, x=X),
        "sweep": door(lambda x, goal: fixed.sweep(x, goal, 5), x=X, goal=GOAL),
        "linearize": door(fixed.linearize, x=X),
        "transpose": door(lambda bias: fixed.transpose(bias, X), bias=BIAS),
        "pullback": door(fixed.pullback, x=X, cotangent=BIAS),
        "pushforward": door(
            lambda x, weight, tangents: fixed.pushforward(x, (weight, tangents)), x=X, weight=WEIGHT, tangents=BIAS
        ),
        "size": door(fixed.size, values=X),
        "restrict": door(lambda keep: fixed.restrict(subset, keep), keep=KEEP),
        "with_parameters": door(lambda weight, bias: fixed.with_parameters(weight, bias), weight=WEIGHT, bias=BIAS),
        "restore": door(
            lambda weight, bias, contraction: restored(GRAPH, [weight, bias], contraction, "max", settings),
            weight=WEIGHT,
            bias=BIAS,
            contraction=fixed.contraction,
        ),
        "solve": door(lambda x0: solve(fixed, x0=x0), x0=X),
    }
    if isinstance(fixed, ActivatedMap):
        doors["transpose at"] = door(lambda at: fixed.transpose(BIAS, at), at=X)
    if isinstance(fixed, LinearMap):
        doors["with_bias"] = door(fixed.with_bias, bias=BIAS)
        doors["settle"] = door(lambda x0, keep: fixed.settle(x0, keep, ACCURACY), x0=X, keep=KEEP)
    return {f"{kind}.{name}": door for name, door in doors.items()}


def models() -> dict[str, Door]:
    torch.manual_seed(0)
    features = {"x": draw(NODES, 4, seed=3), "edge_attr": draw(EDGES, 2, seed=4)}
    sizes = {"node_features": 4, "edge_features": 2, "hidden": (8,), "decoder": (8,)}
    scaled = ScaledModel("GNN", {"hidden": (8,), "decoder": (8,), "width": 8}, 4, 2, node_logs=[1])
    every: dict[str, Any] = {
        "CGS": ConvergentGraphSolver(**sizes, heads=2, width=8),
        "GNN": GNN(**sizes, width=8),
        "IGNN": IGNN(**sizes, units=4, channels=3, width=8),
        "SSE": SSE(4, 2, units=8, gain=0.5, decoder=(8,)),
        "scaled": scaled,
        "conv": ConvergentConv(4, heads=2, edge_dim=2),
    }
    doors = {name: door(lambda x, edge_attr, model=model: model(x, GRAPH, edge_attr), **features) for name, model in every.items()}
    inner = {"nodes": features["x"], "edges": features["edge_attr"]}
    for name, layer in {"GNLayer": GNLayer(4, 2, 3, 3, (8,)), "AttentionGN": AttentionGN(4, 2, 3, 3, hidden=(8,))}.items():
        doors[name] = door(lambda nodes, edges, layer=layer: layer(GRAPH, nodes, edges), **inner)
    return doors


SCALER = Scaler(4, logs=[2])
DOORS: dict[str, Door] = {
    "propagate": door(lambda weight, x: operations.propagate(GRAPH, weight, x), weight=WEIGHT, x=X),
    "edge_product": door(lambda u, x: operations.edge_product(GRAPH, u, x), u=BIAS, x=X),
    "edge_sum": door(lambda values, u, x: operations.edge_sum(GRAPH, values, u, x), values=WEIGHT, u=BIAS, x=X),
    "sum_edges": door(lambda values: operations.sum_edges(GRAPH, values), values=WEIGHT),
    "at_rows": door(lambda u: operations.at_rows(GRAPH, u), u=X),
    **of_map("LinearMap", LINEAR),
    **of_map("ActivatedMap", ACTIVATED),
    "degree": door(
        lambda logits, gamma: weights.degree(GRAPH, logits, gamma), logits=WEIGHT, gamma=torch.full((NODES, HEADS), 0.5)
    ),
    "signed": door(lambda logits, gamma: weights.signed(GRAPH, logits, gamma), logits=WEIGHT, gamma=torch.full((HEADS,), 0.5)),
    "softmax": door(lambda logits: weights.softmax(GRAPH, logits), logits=WEIGHT),
    "row_softmax": door(lambda logits: weights.row_softmax(GRAPH, logits), logits=WEIGHT),
    "subset": door(lambda keep: list(GRAPH.subset(keep)[1:]), keep=KEEP),
    "pool": door(lambda values: pool(GRAPH, values, "mean"), values=X),
    "Scaler": door(SCALER.forward, values=draw(NODES, 4)),
    "Scaler.fit": door(lambda values: Scaler(4, logs=[2]).fit(values).mean, values=draw(NODES, 4)),
    "Scaler.inverse": door(Scaler(3).inverse, scaled=X),
    **models(),
}
# Of these a dimension may have any size: heads that every tensor of the call shares, rows that belong to no graph.
ANY_COLUMNS = {"sum_edges", "at_rows", "softmax", "row_softmax", "pool", "LinearMap.size", "ActivatedMap.size"}
ANY_ROWS = {"Scaler", "Scaler.fit", "Scaler.inverse"}
PLACES = [(door, name) for door, each in DOORS.items() for name in each.tensors]


def wrong(door: str, name: str) -> dict[str, Any]:
    """Tensors that this argument must not be."""
    value = DOORS[door].tensors[name]
    bad: dict[str, Any] = {
        "no tensor": value.tolist(),
        "integers": value.to(torch.int64),
        "short integers": value.to(torch.int32),
        "complex": value.to(torch.complex64),
        "another device": value.to("meta"),
        "sparse": value.to_sparse(),
        "one dimension more": value.unsqueeze(0),
        "one number": value.flatten()[0],
    }
    if value.dtype != torch.bool:
        bad["bool"] = value > 0
    if door not in ANY_ROWS:
        bad |= {"short": value[:-1], "long": torch.cat([value, value[:1]]), "one row": value[:1], "none": value[:0]}
    if value.dim() == 2 and door not in ANY_COLUMNS:
        bad |= {"narrow": value[:, :-1], "wide": torch.cat([value, value[:, :1]], 1), "one column": value[:, :1]}
    if name == "gamma":
        del bad["one number"]
    return bad


@pytest.mark.parametrize(("door", "name"), PLACES, ids=lambda part: part)
def test_what_no_kernel_may_read_is_refused_by_name(door: str, name: str) -> None:
    for kind, value in wrong(door, name).items():
        with pytest.raises(InputError, match=r"^\w+: expected "):
            pytest.fail(f"{door} took {name}: {kind}, and gave {DOORS[door].outputs(**{name: value})}")


@pytest.mark.parametrize(("door", "name"), PLACES, ids=lambda part: part)
def test_strides_do_not_matter(door: str, name: str) -> None:
    value = DOORS[door].tensors[name]
    expected = DOORS[door].outputs()
    spread = torch.empty(*(2 * size for size in value.shape), dtype=value.dtype)
    every_other = spread[tuple(slice(None, None, 2) for _ in value.shape)].copy_(value)
    for odd in (value.t().contiguous().t(), every_other, value.clone().requires_grad_(value.is_floating_point())):
        for found, wanted in zip(DOORS[door].outputs(**{name: odd}), expected, strict=True):
            torch.testing.assert_close(found.detach(), wanted.detach())
    if value.dim() == 2 and value.is_floating_point():
        row = value[:1].expand_as(value)
        for found, wanted in zip(DOORS[door].outputs(**{name: row}), DOORS[door].outputs(**{name: row.clone()}), strict=True):
            torch.testing.assert_close(found.detach(), wanted.detach())


@pytest.mark.parametrize("door", ["propagate", "edge_product", "edge_sum"])
def test_dtypes_that_differ_give_the_wider_one(door: str) -> None:
    tensors = DOORS[door].tensors
    for name, value in tensors.items():
        for dtype in (torch.float16, torch.bfloat16, torch.float64):
            (found,) = DOORS[door].outputs(**{name: value.to(dtype)})
            wider = torch.promote_types(dtype, torch.float32)
            assert found.dtype == wider
            exact = {other: part.to(wider) for other, part in tensors.items()} | {name: value.to(dtype).to(wider)}
            torch.testing.assert_close(found, DOORS[door].outputs(**exact)[0])


def test_every_method_and_operation_that_takes_a_tensor_is_here() -> None:
    missing = []
    for kind in (LinearMap, ActivatedMap):
        for name, method in inspect.getmembers(kind, callable):
            public = not name.startswith("_") or name == "__call__"
            if public and not name.startswith("expect_") and takes_a_tensor(method) and f"{kind.__name__}.{name}" not in DOORS:
                missing.append(f"{kind.__name__}.{name}")
    for module in (operations, weights):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if (
                function.__module__ == module.__name__
                and not name.startswith("_")
                and takes_a_tensor(function)
                and name not in DOORS
            ):
                missing.append(name)
    assert not missing


def takes_a_tensor(function: Callable[..., Any]) -> bool:
    return any("Tensor" in str(parameter.annotation) for parameter in inspect.signature(function).parameters.values())


def test_a_compiled_call_is_tested_too() -> None:
    compiled = torch.compile(lambda weight, x: operations.propagate(GRAPH, weight, x), backend="aot_eager", dynamic=True)
    torch.testing.assert_close(compiled(WEIGHT, X), operations.propagate(GRAPH, WEIGHT, X))
    with pytest.raises(Exception, match=r"x: expected shape"):
        compiled(WEIGHT, X[:-1])
    arguments = (GRAPH.tensors(), GRAPH.flow)
    with pytest.raises(InputError, match="x: expected shape"):
        torch.ops.convergent.propagate(*arguments, WEIGHT, X[:-1])
    with pytest.raises(InputError, match="u: expected shape"):
        torch.ops.convergent.edge_product(*arguments, BIAS[:-1], X)


def test_a_layer_names_what_does_not_fit_its_graph() -> None:
    """Each of these read memory that was not its own."""
    conv = ConvergentConv(8, heads=4, edge_dim=2)
    edges = torch.randint(0, 1000, (2, 5000))
    with pytest.raises(InputError, match=r"edge_attr: expected shape \[5000, 2\], but got \[1, 2\]"):
        conv(torch.randn(1000, 8), edges, torch.randn(1, 2))
    with pytest.raises(InputError, match=r"x: expected shape \[100000, 8\], but got \[3, 8\]"):
        conv(torch.randn(3, 8), Graph(edges, 100_000), torch.randn(5000, 2))
    with pytest.raises(InputError, match="batch: expected None where edge_index is a Graph"):
        conv(torch.randn(1000, 8), Graph(edges, 1000), torch.randn(5000, 2), batch=torch.zeros(1000, dtype=torch.long))
