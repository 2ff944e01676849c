"""On a CUDA device: one product against the copy bandwidth, index_add and cuSPARSE; and a whole layer, forward and backward.

Kernels are timed inside CUDA graphs, where nothing waits for Python; whole layers are timed as they are called.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import OURS, Timing
from benchmarks.options import Options
from benchmarks.peers import layers
from benchmarks.report import Case, Report, Target
from benchmarks.workloads import Workload, decision_processes
from convergent.kernels import backend
from convergent.kernels.reference import Rows

COPY, INDEX_ADD, SPARSE, DENSE = "copy", "index_add", "cuSPARSE, head by head", "dense (paper)"
DEGREE, NEAR = 10, 500  # edges of a node; how far its neighbours are in a graph with locality
HEADS = (1, 4, 16, 64)


def run(options: Options) -> Report:
    nodes, copied = (20_000, 1 << 22) if options.quick else (1_000_000, 1 << 28)
    settings = {"nodes": nodes, "edges": DEGREE * nodes, "copied_numbers": copied, "bytes": "weights + columns + pointers + x + y"}
    report = Report("cuda", options.quick, options.seed, {**settings, "device": torch.cuda.get_device_name()})
    copy = copy_time(copied)
    bandwidth = 8 * copied / copy.median
    for kind in ("local", "random"):
        rows, row = structure(kind, nodes, options.seed)
        for heads in HEADS:
            options.say(f"{kind}, {heads} heads")
            case = product_case(kind, rows, row, heads, bandwidth)
            case.timings[COPY] = copy
            report.cases.append(case)
            wanted = 0.6 if kind == "local" else 0.45
            report.targets.append(Target(f"{case.name}: fraction of the copy", case.measured["fraction_of_copy"], at_least=wanted))
            report.targets.append(Target(f"{case.name}: index_add", case.ratio(INDEX_ADD), at_least=10))
            if heads <= 4:
                report.targets.append(Target(f"{case.name}: cuSPARSE", case.ratio(SPARSE), at_least=1))
            options.keep(report)
    options.say("W1")
    case = layer_case(decision_processes(4 if options.quick else 64, 64, 0.5, options.seed))
    report.cases.append(case)
    report.targets.append(Target("W1: dense", case.ratio(DENSE), at_least=60))
    return report


def structure(kind: str, nodes: int, seed: int) -> tuple[Rows, Tensor]:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    row = torch.arange(nodes, device="cuda").repeat_interleave(DEGREE)
    if kind == "random":
        column = torch.randint(0, nodes, row.shape, device="cuda", generator=generator)
    else:
        column = (row + torch.randint(-NEAR, NEAR + 1, row.shape, device="cuda", generator=generator)).clamp(0, nodes - 1)
    return Rows((torch.arange(nodes + 1, device="cuda") * DEGREE).int(), column.int(), None), row


def product_case(kind: str, rows: Rows, row: Tensor, heads: int, bandwidth: float) -> Case:
    nodes, edges = len(rows.pointer) - 1, len(row)
    weight, x = torch.rand(edges, heads, device="cuda"), torch.rand(nodes, heads, device="cuda")
    case = Case(f"{kind}, {heads} heads", {"kind": kind, "nodes": nodes, "edges": edges, "heads": heads, "dtype": "float32"})
    kernels = backend(x)
    case.timings[OURS] = kernel_time(lambda: kernels.propagate(rows, weight, x))
    case.timings[INDEX_ADD] = kernel_time(lambda: torch.zeros_like(x).index_add_(0, row, weight * x[rows.column]))
    exact = torch.zeros(nodes, heads, dtype=torch.float64, device="cuda").index_add_(
        0, row, weight.double() * x[rows.column].double()
    )
    case.errors[OURS] = {"largest": float((kernels.propagate(rows, weight, x) - exact).abs().max())}
    if heads <= 4:
        head, vector = weight[:, 0].contiguous(), x[:, 0].contiguous()
        matrix = torch.sparse_csr_tensor(rows.pointer, rows.column, head, (nodes, nodes), check_invariants=False)
        single = kernel_time(lambda: matrix @ vector)
        case.timings[SPARSE] = Timing([heads * seconds for seconds in single.seconds])
    moved = weight.nbytes + rows.column.nbytes + rows.pointer.nbytes + 2 * x.nbytes
    case.measured = {"bytes": moved, "fraction_of_copy": moved / case.timings[OURS].median / bandwidth}
    return case


def layer_case(work: Workload) -> Case:
    moved = {name: getattr(work, name).cuda() for name in ("edge_index", "batch", "weight", "bias")}
    work = replace(work, **moved)
    case = Case("W1, forward and backward", {**work.settings(), "tol": 1e-6})
    cotangent = torch.rand_like(work.bias)
    peers: dict[str, Callable[..., Any]] = {
        OURS: layers.convergent_layer(work, 1e-6),
        INDEX_ADD: layers.index_add_layer(work, 1e-6),
        DENSE: layers.dense_layer(work),
    }
    answers = {name: forward_backward(layer, work, cotangent) for name, layer in peers.items()}
    for name, (value, to_weight) in answers.items():
        case.errors[name] = {
            "value_from_ours": float((value - answers[OURS][0]).abs().max()),
            "gradient_from_ours": float((to_weight - answers[OURS][1]).abs().max()),
        }
    for name, layer in peers.items():
        case.timings[name] = wall_time(lambda layer=layer: forward_backward(layer, work, cotangent), 3 if name == DENSE else 20)
    return case


def forward_backward(layer: Callable[..., Any], work: Workload, cotangent: Tensor) -> tuple[Tensor, Tensor]:
    weight, bias = work.weight.detach().requires_grad_(), work.bias.detach().requires_grad_()
    value = layer(weight, bias)
    return value.detach(), torch.autograd.grad(value, (weight, bias), cotangent)[0]


def kernel_time(work: Callable[[], Any]) -> Timing:
    from triton.testing import do_bench_cudagraph

    return Timing([milliseconds / 1e3 for milliseconds in do_bench_cudagraph(work, rep=50, return_mode="all")])


def copy_time(numbers: int) -> Timing:
    """Not in a CUDA graph, where a copy is a transfer, which is slower than torch's kernel."""
    from triton.testing import do_bench

    source, target = torch.empty(2, numbers, device="cuda")
    return Timing([milliseconds / 1e3 for milliseconds in do_bench(lambda: target.copy_(source), rep=50, return_mode="all")])


def wall_time(work: Callable[[], Any], repeats: int) -> Timing:
    """Every repeat from a device at rest to a device at rest."""
    timing = Timing()
    for repeat in range(repeats + 2):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        if repeat >= 2:
            timing.seconds.append(time.perf_counter() - begin)
    return timing
