"""W1, the paper's training batch: a whole layer, forward and backward, as called from Python and replayed in a CUDA graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from benchmarks import w1
from benchmarks.cuda.clock import wall_time
from benchmarks.measure import OURS, Candidate
from benchmarks.options import Options
from benchmarks.peers import layers
from benchmarks.report import Case, Report, Target
from benchmarks.workloads import Workload, decision_processes

REPLAYED, FASTEST = "convergent, in a CUDA graph", "the faster TorchDEQ"
GAMMA = 0.5


def run(report: Report, options: Options) -> None:
    graphs, heads, rounds = (4, 8, 1) if options.quick else (64, 64, 3)
    report.settings["layer"] = {"graphs": graphs, "heads": heads, "tol": w1.TOL, "rounds": rounds}
    options.say("W1")
    work = decision_processes(graphs, heads, GAMMA, options.seed).to(options.device)
    case = w1.compare("W1, forward and backward", work, w1.TOL, rounds, options.budget(3.0))
    replay(case, work, options.device)
    report.cases.append(case)
    report.targets += targets(case)
    options.keep(report)


def targets(case: Case) -> list[Target]:
    deq = faster_torchdeq(case)
    found = []
    for title, ours in (("W1", OURS), ("W1, in a CUDA graph", REPLAYED)):
        found.append(Target(f"{title}: dense", case.ratio(w1.DENSE, ours=ours), at_least=60))
        found.append(Target(f"{title}: {FASTEST}", None if deq is None else case.ratio(deq, ours=ours), at_least=10))
    return found


def faster_torchdeq(case: Case) -> str | None:
    there = [name for name in w1.TORCHDEQ if name in case.timings]
    return min(there, key=lambda name: case.timings[name].median, default=None)


def replay(case: Case, work: Workload, device: str) -> None:
    """Ours once more, without Python. That a solve can be captured is a finding, so a failure is one too."""
    if device != "cuda":
        case.details[REPLAYED] = {"skipped": "there is no CUDA device"}
        return
    cotangent = w1.cotangent_of(work)
    try:
        captured, answer = capture(layers.convergent_layer(work, w1.TOL), work, cotangent)
    except Exception as failure:
        case.details[REPLAYED] = {"skipped": f"could not be captured: {first_cause(failure)!r}"}
        return
    case.timings[REPLAYED] = wall_time(Candidate(lambda _: captured.replay()), device, 20)
    exact = w1.forward_backward(layers.linalg_layer(work), work, cotangent, torch.float64)
    case.errors[REPLAYED] = w1.errors(answer, exact)


def first_cause(failure: BaseException) -> BaseException:
    """What broke a capture; to end a broken capture raises again."""
    while failure.__context__ is not None:
        failure = failure.__context__
    return failure


def capture(layer: layers.Layer, work: Workload, cotangent: Tensor) -> tuple[Any, w1.Pass]:
    """A CUDA graph of a forward and backward pass, and where it leaves its answer."""
    for _ in range(3):
        warm_up(layer, work, cotangent)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        answer = w1.forward_backward(layer, work, cotangent)
    captured.replay()
    torch.cuda.synchronize()
    return captured, answer


def warm_up(layer: layers.Layer, work: Workload, cotangent: Tensor) -> None:
    """On a stream of its own, as captures want it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        w1.forward_backward(layer, work, cotangent)
    torch.cuda.current_stream().wait_stream(side)
