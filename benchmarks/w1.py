"""W1, the paper's training batch: a whole layer, forward and backward through autograd."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.calibrate import calibrate
from benchmarks.measure import OURS, Candidate, at_rest, interleave
from benchmarks.memory import METHOD, peak_in_subprocess
from benchmarks.options import Options
from benchmarks.peers import layers, missing
from benchmarks.report import Case, Report, Target
from benchmarks.workloads import Workload, decision_processes

TOL = 1e-6
DENSE, INDEX_ADD, LINALG = "dense (paper)", "index_add", "torch.linalg.solve"
TORCHDEQ = {  # to start from; Anderson with its own ridge and with the one that is fastest in float32
    "TorchDEQ fixed point": layers.DEQ("fixed_point_iter", math.inf, math.inf),
    "TorchDEQ Anderson": layers.DEQ("anderson", math.inf, math.inf),
    "TorchDEQ Anderson, tuned": layers.DEQ("anderson", math.inf, math.inf, ridge=1e-12),
}


class Pass(NamedTuple):
    """An answer and its gradients."""

    value: Tensor
    weight: Tensor
    bias: Tensor


def run(options: Options) -> Report:
    graphs, heads, rounds = (4, 8, 2) if options.quick else (64, 64, 15)
    budget = options.budget(30.0)
    settings = {"graphs": graphs, "heads": heads, "tol": TOL, "rounds": rounds, "budget": budget, "memory": METHOD}
    report = Report("w1", options.quick, options.seed, settings)
    for gamma in (0.5, 0.9):
        options.say(f"gamma {gamma}")
        work = decision_processes(graphs, heads, gamma, options.seed)
        report.cases.append(compare(f"gamma {gamma}", work, TOL, rounds, budget))
    half, most = report.cases
    options.say("memory")
    half.measured = measure_memory(graphs, heads, 0.5, TOL, options)
    report.targets = [
        Target("gamma 0.5, dense (paper) over ours", half.ratio(DENSE), at_least=3000),
        Target("gamma 0.5, index_add over ours", half.ratio(INDEX_ADD), at_least=12),
        Target("gamma 0.5, TorchDEQ fixed point over ours", half.ratio("TorchDEQ fixed point"), at_least=25),
        Target("gamma 0.5, TorchDEQ Anderson over ours", half.ratio("TorchDEQ Anderson"), at_least=100),
        Target("gamma 0.5, peak memory, dense (paper) over ours", half.measured["memory_ratio"], at_least=50),
        Target("gamma 0.9, index_add over ours", most.ratio(INDEX_ADD), at_least=30),
    ]
    return report


def compare(name: str, work: Workload, tol: float, rounds: int, budget: float) -> Case:
    cotangent = cotangent_of(work)
    reference = forward_backward(layers.linalg_layer(work), work, cotangent, torch.float64)
    case = Case(name, {**work.settings(), "tol": tol})
    contestants = {
        OURS: layers.convergent_layer(work, tol),
        INDEX_ADD: layers.index_add_layer(work, tol),
        LINALG: layers.linalg_layer(work),
        DENSE: layers.dense_layer(work, tol),
    }
    # in float32 an iteration can end above the tolerance: nobody is asked for more than index_add can do
    floor = errors(forward_backward(contestants[INDEX_ADD], work, cotangent), reference)
    wanted = {name: max(tol, 1.5 * error) for name, error in floor.items()}
    for peer, start in TORCHDEQ.items():
        if reason := missing("torchdeq"):
            case.details[peer] = {"skipped": reason}
            continue
        settings = calibrated_torchdeq(start, work, cotangent, reference, wanted)
        contestants[peer] = layers.torchdeq_layer(work, settings)
        case.details[peer] = {**asdict(settings), "wanted": wanted["value"]}
    candidates = {}
    for peer, layer in contestants.items():
        case.errors[peer] = errors(forward_backward(layer, work, cotangent), reference)
        detail = case.details.setdefault(peer, {})
        detail["reached"] = case.errors[peer]["value"] <= tol
        candidates[peer] = candidate(layer, work, cotangent)
    case.details[OURS].update(forward_method(work, tol))
    case.timings = interleave(candidates, rounds, budget)
    return case


def cotangent_of(work: Workload) -> Tensor:
    return torch.randn(work.bias.shape, generator=torch.Generator().manual_seed(1)).to(work.bias.device)


def candidate(layer: layers.Layer, work: Workload, cotangent: Tensor) -> Candidate:
    return at_rest(Candidate(lambda _: forward_backward(layer, work, cotangent)), work.bias.device)


def forward_backward(layer: layers.Layer, work: Workload, cotangent: Tensor, dtype: torch.dtype = torch.float32) -> Pass:
    weight, bias = (part.detach().to(dtype).requires_grad_() for part in (work.weight, work.bias))
    value = layer(weight, bias)
    return Pass(value.detach(), *torch.autograd.grad(value, (weight, bias), cotangent.to(dtype)))


def errors(answer: Pass, reference: Pass) -> dict[str, float]:
    """The largest error of any entry; of gradients, which have no scale of their own, relative to the largest entry."""
    away = [float((mine.double() - true).abs().max()) for mine, true in zip(answer, reference, strict=True)]
    weight, bias = (float(gradient.abs().max()) for gradient in reference[1:])
    return {"value": away[0], "weight_gradient": away[1] / weight, "bias_gradient": away[2] / bias}


def calibrated_torchdeq(
    start: layers.DEQ, work: Workload, cotangent: Tensor, reference: Pass, wanted: dict[str, float]
) -> layers.DEQ:
    """The fewest steps and loosest tolerances, first of the forward, then of the backward solve, that will do."""
    scale = 10 * (1 - work.gamma) * math.sqrt(work.bias.numel())  # from a step that is looser than could do
    value, gradient = wanted["value"], wanted["bias_gradient"]
    size = float(reference.bias.abs().max())

    def attempt(settings: layers.DEQ) -> dict[str, float]:
        return errors(forward_backward(layers.torchdeq_layer(work, settings), work, cotangent), reference)

    def ahead(base: layers.DEQ) -> tuple[layers.DEQ, bool]:
        found = calibrate(lambda tol: attempt(replace(base, tol=tol)), lambda error: error["value"], value, scale * value, tries=8)
        return replace(base, tol=found.tol), found.reached

    def back(base: layers.DEQ) -> tuple[layers.DEQ, bool]:
        first = scale * gradient * size
        found = calibrate(
            lambda tol: attempt(replace(base, backward_tol=tol)),
            lambda error: error["bias_gradient"],
            gradient,
            first,
            tries=8,
        )
        return replace(base, backward_tol=found.tol), found.reached

    for patience in (1, 2, 4):
        forward, right = ahead(replace(start, patience=patience))
        settings, exact = back(forward)
        if right and exact:
            break
    return settings


def forward_method(work: Workload, tol: float) -> dict[str, Any]:
    from convergent import Auto, LinearMap, solve

    solution = solve(LinearMap(work.graph, work.weight, work.bias), Auto(tol=tol))
    bound = float(solution.error_bound.max())
    return {"method": solution.method, "iterations": solution.iterations, "certified": bound}


def measure_memory(graphs: int, heads: int, gamma: float, tol: float, options: Options) -> dict[str, Any]:
    settings = {
        "graphs": graphs,
        "heads": heads,
        "gamma": gamma,
        "tol": tol,
        "seed": options.seed,
        "threads": options.threads,
    }
    ours, dense = (peak_in_subprocess(layer, settings) for layer in ("convergent", "dense"))
    return {"memory_bytes": ours, "memory_bytes_dense": dense, "memory_ratio": dense / max(ours, 1)}
