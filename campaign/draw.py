"""One random batch of systems with everything that is asked of it, from a seed and a number."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from campaign.blocks import Structure
from campaign.exact_rows import weight_with_exact_rows
from campaign.extended import LONG, SLOPES
from campaign.loaded import loaded
from campaign.numbers import random_bias, random_contraction, random_weight
from campaign.shapes import pick, random_structure
from convergent import ActivatedMap, FixedPointMap, Graph, LinearMap
from convergent.certify import CERTIFICATES
from convergent.solvers import Solver

HEADS = {"cpu": ((0, 1, 2, 3, 5, 8, 16, 17, 32), (0.1, 2, 1, 1, 1, 4, 6, 1, 3)), "cuda": ((0, 1, 4, 16, 32), (0.1, 1, 1, 4, 4))}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SLOW, PATIENT = 2e3, 2000  # 1 / (1 - c) above which methods without acceleration get a budget, and its largest
PLAIN = ("Picard", "Anderson")
TRANSFORMS = ("vjp", "vmap", "jvp", "forward")  # of torch.func; forward: duals of torch.autograd
FORWARD = ("jvp", "forward")
GRADIENTS = ("none", "implicit", "own", "one step", "unrolled", *TRANSFORMS)
LIKELY = {
    "LinearMap": (14, 4, 1, 1, 1, 1, 1, 1, 1),
    "ActivatedMap": (14, 4, 1, 1, 1, 1, 1, 0, 0),
    "MaxPlusMap": (14, 4, 1, 1, 1, 0, 0, 0, 0),
}
EXACT = 1e-4  # what rows that sum to one in places lose, as far as scales and budgets go


@dataclass
class Drawn:
    """A batch and what is asked of it."""

    structure: Structure
    kind: str  # LinearMap, ActivatedMap or MaxPlusMap
    weight: Tensor  # [E, H]; rewards of a MaxPlusMap
    bias: Tensor  # [N, H]
    solver: Solver
    device: str
    flow: str = "target_to_source"
    activation: str = "identity"
    discount: float = 0.5
    transposed: bool = False
    x0: Tensor | None = None
    gradient: str = "none"
    cotangent: Tensor | None = None
    direction: Tensor | None = None  # [E, H] along which the weight moves in forward mode; the bias moves along the cotangent
    repeats: bool = False
    alone: int | None = None  # a graph to be solved without the others too
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def norm(self) -> str:
        return "one" if self.transposed else "max"

    @property
    def dtype(self) -> torch.dtype:
        """Of the answer, were it not refined: half precision is solved in float32."""
        return torch.float32 if self.bias.dtype in (torch.float16, torch.bfloat16) else self.bias.dtype

    def asked(self) -> tuple[float, float]:
        """Absolute and relative tolerance, as documented."""
        if self.solver.tol is None and self.solver.rtol is None:
            return 1e-6, 1e-6 if self.dtype == torch.float32 else 0.0
        return self.solver.tol or 0.0, self.solver.rtol or 0.0

    def relative(self) -> float:
        """The relative tolerance of adjoints and tangents, as documented."""
        return max(self.solver.tol or 0.0, self.solver.rtol or 0.0) or 1e-6

    def map(self, weight: Tensor, bias: Tensor) -> FixedPointMap:
        """The library's map of these tensors."""
        ends = (self.structure.row, self.structure.column)
        index = torch.stack(ends if self.flow == "target_to_source" else ends[::-1])
        batch = None if len(self.structure.sizes) == 1 else self.structure.graph_of
        graph = Graph(index, self.structure.num_nodes, batch=batch, flow=self.flow)
        if self.kind == "ActivatedMap":
            return ActivatedMap(graph, weight, bias, self.activation)
        if self.kind == "MaxPlusMap":
            return loaded("examples/custom_map.py").MaxPlusMap(graph, weight, bias, self.discount)
        fixed = LinearMap(graph, weight, bias)
        return fixed.transpose(fixed.bias) if self.transposed else fixed

    def only(self, graph: int) -> Drawn:
        """One graph of the batch as a batch of its own."""
        structure, nodes, edges = self.structure.only(graph)
        x0 = None if self.x0 is None else self.x0[nodes]
        parts: dict[str, Any] = {"structure": structure, "weight": self.weight[edges], "bias": self.bias[nodes], "x0": x0}
        return dataclasses.replace(self, **parts, gradient="none", alone=None)


def drawn(seed: int, number: int, device: str) -> Drawn:
    draw = np.random.default_rng([seed, number])
    structure, pattern = random_structure(draw, device)
    heads = pick(draw, *HEADS[device])
    dtype = pick(draw, DTYPES, (9, 7, 2, 1))
    kind = pick(draw, ("LinearMap", "ActivatedMap", "MaxPlusMap"), (7, 2, 1))
    activation = pick(draw, tuple(LONG)) if kind == "ActivatedMap" else "identity"
    wanted, contraction = random_contraction(draw, len(structure.sizes), heads)
    weight, about = random_weight(draw, structure, wanted, SLOPES[activation], dtype)
    bias, bias_kind = random_bias(draw, structure.num_nodes, structure, heads, dtype)
    worst = float(wanted.max()) if wanted.numel() else 0.0
    if kind == "LinearMap" and draw.random() < 0.2:
        exact = weight_with_exact_rows(draw, structure, heads, dtype)
        if exact is not None:
            (weight, about), contraction, worst = exact, "exactly one", 1 - EXACT
    if kind == "MaxPlusMap":
        worst = min(max(worst, 1e-3), 1 - 1e-6)
        weight = torch.from_numpy(draw.standard_normal(tuple(weight.shape))).to(dtype)
        weight = weight * bias.abs().amax() if bias.numel() else weight
        weight = torch.nan_to_num(weight, 0.0, 1.0, -1.0)
        worst = float(torch.tensor(worst, dtype=torch.float64 if dtype == torch.float64 else torch.float32))  # as the map has it
    if dtype == torch.bfloat16 and kind != "MaxPlusMap" and draw.random() < 0.5:
        bias = bias.float()  # a GPU keeps such weights as they are
    scale = float(bias.abs().double().median()) if bias.numel() else 1.0
    scale = (scale or 1.0) * pick(draw, (1.0, 1 / (1 - min(worst, 1 - 1e-12))))
    transposed = kind == "LinearMap" and draw.random() < 0.15
    solver = random_solver(draw, kind, scale, worst)
    if contraction == "exactly one" and solver.certify == "plain":
        solver = dataclasses.replace(solver, certify="auto")  # the plain certificate has no bound there, and is refused
    made = Drawn(structure, kind, weight, bias, solver, device, activation=activation, discount=worst or 0.5, transposed=transposed)
    made.flow = pick(draw, ("target_to_source", "source_to_target"))
    _extras(draw, made, scale)
    made.about = {"pattern": pattern, "contraction": contraction, **about, "bias": bias_kind}
    return made if device == "cpu" else _moved(made, device)


def random_solver(draw: Generator, kind: str, scale: float, worst: float) -> Solver:
    """Any registered method that serves the kind of map, with any settings."""
    methods = {name: method for name, method in Solver.methods.items() if kind == "LinearMap" or not method.only_linear}
    name = pick(draw, tuple(sorted(methods)))
    settings: dict[str, Any] = random_tolerance(draw, scale)
    settings["throw"] = bool(draw.random() < 0.1)
    settings["refine"] = bool(draw.random() < 0.25)
    settings["certify"] = pick(draw, CERTIFICATES, (6, 1, 3))
    if draw.random() < 0.2:
        settings["max_iterations"] = int(10 ** draw.uniform(0, 3))
    slow = 1 / max(1 - worst, 1e-16) > SLOW
    if slow and (name in PLAIN or kind != "LinearMap") and "max_iterations" not in settings:
        settings["max_iterations"] = int(draw.integers(1, PATIENT))
    own = {"depth": (1, 9), "trial": (1, 200)}
    names = {entry.name for entry in dataclasses.fields(methods[name])}
    settings |= {option: int(draw.integers(*own[option])) for option in own if option in names and draw.random() < 0.5}
    return methods[name](**settings)


def random_tolerance(draw: Generator, scale: float) -> dict[str, float]:
    kind = pick(draw, ("default", "tol", "rtol", "both", "below"), (2, 4, 3, 2, 2))
    tol = float(min(scale * 10 ** draw.uniform(-12, 0), 1e300)) or 1e-300
    rtol = float(10 ** draw.uniform(-14, -1))
    if kind == "below":  # what no dtype can hold
        return {"tol": max(scale * 1e-25, 5e-324)} if draw.random() < 0.5 else {"rtol": 10 ** draw.uniform(-25, -16)}
    return {"default": {}, "tol": {"tol": tol}, "rtol": {"rtol": rtol}, "both": {"tol": tol, "rtol": rtol}}[kind]


def _extras(draw: Generator, made: Drawn, scale: float) -> None:
    """Where to start, gradients, and whether to call again or alone."""
    shape = (made.structure.num_nodes, made.bias.shape[1])
    largest = torch.finfo(made.dtype).max / 100
    if draw.random() < 0.2:
        start = draw.standard_normal(shape) * min(scale * pick(draw, (1.0, 1e-6, 1e6)), largest)
        made.x0 = torch.from_numpy(np.clip(start, -largest, largest)).to(made.dtype)
    made.gradient = pick(draw, GRADIENTS, LIKELY[made.kind])
    if made.gradient != "none":
        size = pick(draw, (1.0, 1e-12, 1e12), (8, 1, 1)) if made.gradient not in FORWARD else 1.0
        made.cotangent = torch.from_numpy(draw.standard_normal(shape) * size).to(made.dtype)
    if made.gradient in ("one step", "unrolled"):  # an error would bring the solution before that step
        made.solver = dataclasses.replace(made.solver, throw=False)
    if made.gradient in TRANSFORMS:  # without an error a transform could not say that a derivative is further off
        made.solver = dataclasses.replace(made.solver, throw=True)
        made.direction = torch.from_numpy(draw.standard_normal(tuple(made.weight.shape))).to(made.weight.dtype)
    made.repeats = bool(draw.random() < 0.1)
    if draw.random() < 0.15 and len(made.structure.sizes) > 1:
        made.alone = int(draw.integers(len(made.structure.sizes)))


def _moved(made: Drawn, device: str) -> Drawn:
    structure = Structure(*(part.to(device) for part in (made.structure.row, made.structure.column, made.structure.sizes)))
    names = ("weight", "bias", "x0", "cotangent", "direction")
    tensors: dict[str, Any] = {name: value.to(device) for name in names if (value := getattr(made, name)) is not None}
    return dataclasses.replace(made, structure=structure, **tensors)
