"""A graph of 10 million nodes and 100 million edges on one card: built, solved forward and backward, checked, weighed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks.cuda.clock import peak, wall_time
from benchmarks.cuda.problem import Regular, structure, weighted
from benchmarks.measure import Candidate
from benchmarks.options import Options
from benchmarks.report import Case, Report, Target
from convergent import Auto, Graph, LinearMap, Solution, solve

HEADS, TOL = 4, 1e-5
BUILD, TURN, FORWARD, BACKWARD, BOTH = "build the graph", "build its transpose", "forward", "backward", "forward and backward"
NOTES = {
    "memory": "torch.cuda.max_memory_allocated: the largest of all that was allocated together, inputs included",
    "minimum": {
        BUILD: "edge_index, 32 bits, which holds the columns, as it is sorted + pointers",
        TURN: "that of the graph + columns, order and pointers of the transpose",
        FORWARD: "weights + columns + pointers + bias, x and W x + b",
        BOTH: "that of forward + gradient of the weights + columns, order and pointers of the transpose + "
        "cotangent, adjoint, which is the gradient of the bias, and its image",
    },
    "residual": "largest entry of W x + b - x in float64, computed without the library, some rows at a time",
    "true_bound": "that residual over 1 - largest sum of a row",
    "adjoint_residual": "1-norm of W^T v + g - v over that of g, of the worst head, in float64",
    "weight_gradient": "largest entry of v_i x_j - gradient over the largest of the gradient, in float64",
}


@dataclass
class Scene:
    """The problem with its gradients and its graph."""

    problem: Regular
    graph: Graph
    weight: Tensor = field(init=False)
    bias: Tensor = field(init=False)
    cotangent: Tensor = field(init=False)  # of the value, for the backward pass

    def __post_init__(self) -> None:
        self.weight, self.bias = (part.detach().requires_grad_() for part in (self.problem.weight, self.problem.bias))

    def forward(self) -> Solution:
        return solve(LinearMap(self.graph, self.weight, self.bias), Auto(tol=TOL))

    def backward(self, solution: Solution) -> tuple[Tensor, ...]:
        return torch.autograd.grad(solution.value, (self.weight, self.bias), self.cotangent)

    def both(self) -> tuple[Solution, tuple[Tensor, ...]]:
        solution = self.forward()
        return solution, self.backward(solution)


def run(report: Report, options: Options) -> None:
    nodes, repeats = (5_000, 1) if options.quick else (10_000_000, 3)
    report.settings["large"] = {"tol": TOL, "repeats": repeats, **NOTES}
    options.say(f"large, {nodes:,} nodes")
    case = measure(nodes, options, repeats)
    report.cases.append(case)
    for name in ("certified_bound", "true_bound"):
        report.targets.append(Target(f"{case.name}: {name.replace('_', ' ')}", case.errors[BOTH][name], at_most=TOL))
    options.keep(report)


def measure(nodes: int, options: Options, repeats: int) -> Case:
    device = options.device
    problem = weighted("local", structure("local", nodes, options.seed, device), HEADS, options.seed)
    case = Case(f"large, {problem.edges:,} edges", {**problem.settings(), "tol": TOL}, ours=BOTH)
    build(case, problem, device)
    scene = Scene(problem, problem.graph())
    weigh(case, scene, device)
    candidates = {
        FORWARD: Candidate(lambda _: scene.forward()),
        BACKWARD: Candidate(scene.backward, prepare=scene.forward),
        BOTH: Candidate(lambda _: scene.both()),
    }
    for name, candidate in candidates.items():
        case.timings[name] = wall_time(candidate, device, repeats, warm=1)
    return case


def build(case: Case, problem: Regular, device: str) -> None:
    """Time and memory of the graph, then of its transpose; weights and bias, which take no part, do not count."""
    case.timings[BUILD] = wall_time(Candidate(lambda _: problem.graph()), device, 1, warm=1)
    case.timings[TURN] = wall_time(Candidate(Graph.transpose, prepare=problem.graph), device, 1, warm=1)
    bytes_of = sizes(problem)
    idle = bytes_of["weights"] + bytes_of["vector"]
    graph, most = peak(problem.graph, device)
    note(case, BUILD, most and most - idle, problem.edge_index.nbytes + bytes_of["pointers"])
    _, most = peak(graph.transpose, device)
    note(case, TURN, most and most - idle, problem.edge_index.nbytes + 2 * bytes_of["pointers"] + 2 * bytes_of["indices"])


def weigh(case: Case, scene: Scene, device: str) -> None:
    """The first passes, which also compile: their memory, and whether their answers are right."""
    bytes_of = sizes(scene.problem)
    forward = bytes_of["weights"] + bytes_of["indices"] + bytes_of["pointers"] + 3 * bytes_of["vector"]
    back = bytes_of["weights"] + 2 * bytes_of["indices"] + bytes_of["pointers"] + 3 * bytes_of["vector"]
    solution, most = peak(scene.forward, device)
    note(case, FORWARD, most, forward)
    case.details[FORWARD] = {"method": solution.method, "iterations": solution.iterations}
    del solution
    scene.graph.transpose()
    scene.cotangent = scene.problem.bias.flip(0)  # not before: a forward pass needs none
    (solution, gradients), most = peak(scene.both, device)
    note(case, BOTH, most, forward + back)
    case.errors[BOTH] = check(scene, solution, *gradients)


def sizes(problem: Regular) -> dict[str, int]:
    """Bytes of what a solve cannot do without."""
    pointers = 4 * (problem.nodes + 1)
    return {"weights": problem.weight.nbytes, "vector": problem.bias.nbytes, "indices": 4 * problem.edges, "pointers": pointers}


def note(case: Case, name: str, most: int | None, least: int) -> None:
    case.measured[f"{name}: memory"], case.measured[f"{name}: minimum"] = most, least
    case.measured[f"{name}: memory over minimum"] = None if most is None else most / least


def check(scene: Scene, solution: Solution, to_weight: Tensor, to_bias: Tensor) -> dict[str, Any]:
    """The gradient of the bias is the adjoint itself."""
    problem, x = scene.problem, solution.value.detach()
    residual = problem.away(x, x)
    return {
        "certified_bound": float(solution.error_bound.max()),
        "true_bound": residual / (1 - float(problem.contraction.max())),
        "residual": residual,
        "adjoint_residual": problem.adjoint_away(to_bias, scene.cotangent),
        "weight_gradient": problem.gradient_away(to_bias, x, to_weight),
    }
