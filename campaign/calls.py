"""Calls of the library with one wrong argument, to be refused, or one in another memory layout, which must change nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from campaign.shapes import pick

BEGIN = """
import torch
from convergent import *
from convergent import weights
from convergent.errors import InputError
from convergent.nn import ConvergentConv, ConvergentGraphSolver
from convergent.operations import at_rows, edge_product, edge_sum, propagate, sum_edges
from convergent.solvers import *

torch.manual_seed({seed})
n, e, h = {nodes}, {edges}, {heads}
given = dict(
    edge_index=torch.randint(n, (2, e)), batch=torch.arange(n) * 3 // n, weight=(torch.rand(e, h) - .5) / e, bias=torch.randn(n, h),
    x=torch.randn(n, h), u=torch.randn(n, h), values=torch.randn(e, h), features=torch.randn(n, 8), edge_attr=torch.randn(e, 2),
)
if {several}:
    inside = given["batch"][given["edge_index"][0]] == given["batch"][given["edge_index"][1]]
    given["edge_index"] = torch.where(inside, given["edge_index"], given["edge_index"][:1])

def call(edge_index, batch, weight, bias, x, u, values, features, edge_attr):
    clean = first
    graph = Graph(clean["edge_index"], n)
    fixed = LinearMap(graph, clean["weight"], clean["bias"])
    curved = ActivatedMap(graph, clean["weight"], clean["bias"], "tanh")
    torch.manual_seed(1)
    conv = ConvergentConv(8, heads=4, edge_dim=2)
    model = ConvergentGraphSolver(node_features=8, edge_features=2, heads=4)
    return {call}

first = dict(given)
expected = call(**given) if {compares} else None
v = given[{name!r}]
try:
    given[{name!r}] = {change}
except (TypeError, IndexError, RuntimeError):  # there is no such change
    print("none")
    raise SystemExit from None
if {name!r} == "edge_index":
    first = given if {of_graph} else first
try:
    found = call(**given)
except InputError as error:
    print("refused", error)
except (TypeError, ValueError, RuntimeError, AttributeError, IndexError, NotImplementedError) as error:
    print("raised", type(error).__name__, error)
else:
    same = expected is None or torch.allclose(torch.as_tensor(found), torch.as_tensor(expected), equal_nan=True)
    print("accepted" if same else "changed")
"""

# A call, and the arguments of it that are changed.
CALLS: dict[str, tuple[str, ...]] = {
    "Graph(edge_index, n).rows.pointer": ("edge_index",),
    "Graph(first['edge_index'], n, batch=batch).segments": ("batch",),
    "solve(LinearMap(graph, weight, bias)).value": ("weight", "bias"),
    "solve(ActivatedMap(graph, weight, bias)).value": ("weight", "bias"),
    "solve(fixed, x0=x).value": ("x",),
    "solve(curved, x0=x).value": ("x",),
    "fixed(x)": ("x",),
    "curved(x)": ("x",),
    "fixed.defect(x)": ("x",),
    "curved.defect(x)": ("x",),
    "fixed.with_bias(bias)(first['x'])": ("bias",),
    "fixed.with_parameters(weight, bias).defect(first['x'])": ("weight", "bias"),
    "solve(fixed.with_bias(bias)).value": ("bias",),
    "solve(fixed.transpose(bias)).value": ("bias",),
    "fixed.pullback(x, u)[0]": ("x", "u"),
    "curved.linearize(x).weight": ("x",),
    "curved.transpose(bias, at=x).defect(first['u'])": ("bias", "x"),
    "fixed.size(x)": ("x",),
    "propagate(graph, weight, x)": ("weight", "x"),
    "edge_product(graph, u, x)": ("u", "x"),
    "edge_sum(graph, values, u, x)": ("values", "u", "x"),
    "sum_edges(graph, values)": ("values",),
    "at_rows(graph, u)": ("u",),
    "weights.degree(graph, values)": ("values",),
    "weights.softmax(graph, values)": ("values",),
    "weights.signed(graph, values)": ("values",),
    "conv(features, edge_index, edge_attr)": ("features", "edge_index", "edge_attr"),
    "conv(features, graph, edge_attr)": ("features", "edge_attr"),
    "model(features, edge_index, edge_attr)": ("features", "edge_index", "edge_attr"),
}

WRONG = {
    "short": "v[:-1]",
    "long": "torch.cat([v, v])",
    "empty": "v[:0]",
    "flat": "v.flatten()",
    "deep": "v.unsqueeze(0)",
    "narrow": "v[:, :1]",
    "wide": "torch.cat([v, v], 1)",
    "turned": "v.t()",
    "complex": "v.to(torch.complex64)",
    "list": "v.tolist()",
    "none": "None",
    "elsewhere": "v.to('meta')",
    "sparse": "v.to_sparse()",
    "nan": "torch.full_like(v, torch.nan)",
    "far": "v + n",
}
SAME = {
    "spread out": "v.repeat_interleave(2, 0)[::2]",
    "by columns": "v.t().contiguous().t()",
    "a part": "torch.cat([v, v])[: len(v)]",
    "of a wider one": "torch.cat([v, v], -1)[..., : v.shape[-1]]",
    "with a gradient": "v.clone().requires_grad_() if v.is_floating_point() else v",
    "expanded": "v",
}
ANY_WIDTH = ("at_rows", "sum_edges", "weights.", "fixed.size")  # calls that take any number of columns
INTEGERS = ("edge_index", "batch")


@dataclass(frozen=True)
class Call:
    """A call as Python source, and what has to come of it: "refused" or "accepted"; "any" where both are fine, but no crash."""

    source: str
    expected: str
    about: dict[str, Any]

    def verdict(self, code: int, said: str) -> str | None:
        """What is wrong with how it ended; None: nothing."""
        word = said.split(" ", 1)[0].strip()
        if word == "none":
            return None
        if code < 0:
            return f"ended by signal {-code}"
        if code != 0 or not word:
            return "traceback of another kind"
        if word == "changed" or (word == "accepted" and self.expected == "refused"):
            return "wrong input is accepted" if self.expected == "refused" else "another layout changes the result"
        if word == "raised" and self.expected == "refused":
            return f"no InputError but {said.split()[1]}"
        return "refused although right" if word in ("refused", "raised") and self.expected == "accepted" else None


def random_call(seed: int, number: int) -> Call:
    draw = np.random.default_rng([seed, number, 1])
    call = pick(draw, tuple(CALLS))
    name = pick(draw, CALLS[call])
    how, change, expected = _change(draw, name)
    edges = pick(draw, (1, 7, 40, 3000), (1, 3, 3, 1))
    sizes = {"nodes": pick(draw, (2, 5, 30, 1000), (1, 3, 3, 1)), "edges": edges, "heads": pick(draw, (1, 2, 4, 16))}
    any_width = call.startswith(ANY_WIDTH) and how in ("narrow", "wide")
    if expected == "refused" and (any_width or _is_fine(call, name, how) or _is_no_change(name, how, sizes)):
        expected = "any"
    facts = {"several": "batch=batch" in call, "compares": expected == "accepted", "of_graph": call.startswith("Graph")}
    source = BEGIN.format(seed=number, call=call, name=name, change=change, **sizes, **facts)
    return Call(source, expected, {"call": call, "argument": name, "is": how, **sizes})


def _change(draw: Generator, name: str) -> tuple[str, str, str]:
    if draw.random() < 0.25:
        how = pick(draw, tuple(SAME))
        return how, SAME[how], "accepted"
    how = pick(draw, tuple(WRONG))
    return how, WRONG[how], "refused"


def _is_fine(call: str, name: str, how: str) -> bool:
    """Where what looks wrong is allowed: products take any numbers, an adjoint any gradient, and some arguments may be left out."""
    numbers = how == "nan" and not call.startswith(("solve(LinearMap", "solve(ActivatedMap", "solve(fixed.with_bias"))
    left_out = how == "none" and ("x0=" in call or ("transpose(" in call and name == "bias"))
    alone = how in ("short", "long") and name == "features" and "edge_index" in call  # as many nodes, some of them without edges
    return numbers or left_out or alone


def _is_no_change(name: str, how: str, sizes: dict[str, int]) -> bool:
    """Where what looks wrong is right, or another question."""
    free = {"edge_index": ("short", "long", "empty", "wide", "nan"), "batch": ("nan", "far"), "edge_attr": ("none", "nan")}
    if how in free.get(name, ()) or (how == "nan" and name not in ("weight", "bias")) or (how == "far" and name not in INTEGERS):
        return True
    if name == "batch":
        return how in ("narrow", "wide", "turned", "none", "flat")
    if how == "narrow":
        return (sizes["heads"] == 1 and name not in ("features", "edge_attr", "edge_index")) or name == "edge_index"
    rows = sizes["edges"] if name in ("weight", "values") else sizes["nodes"]
    square = {rows, sizes["heads"]} if name not in ("features", "edge_attr") else {0, 1}
    return (how == "turned" and (len(square) == 1 or name == "edge_index")) or (sizes["edges"] == 1 and how in ("flat", "short"))
