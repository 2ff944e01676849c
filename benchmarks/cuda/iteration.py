"""One iteration, x <- W x + b with the length of the step, against the copy bandwidth, index_add and cuSPARSE."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.cuda.clock import copy_time, free, kernel_time
from benchmarks.cuda.problem import KINDS, Regular, structure, weighted
from benchmarks.measure import OURS, Candidate, Timing, at_rest, clocked
from benchmarks.options import Options
from benchmarks.report import Case, Report, Target
from convergent.kernels import backend

COPY, PRODUCT, HALVED = "copy", "product", "product, bfloat16 weights"
INDEX_ADD, SPARSE = "index_add", "cuSPARSE, head by head"
HEADS, FEW, HALVED_HEADS = (1, 4, 16, 64), 4, (4, 16)
FRACTION = {"local": 0.6, "random": 0.45}  # of the copy bandwidth
SHORT, LONG = 8, 40  # iterations of two runs, whose difference is free of what a run costs besides
SECTOR = 32  # bytes that a gather of a single number moves
NOTES = {
    "bytes": "of an iteration: weights + columns + pointers + x + bias + y",
    "iteration": f"(time of {LONG} - time of {SHORT}) / {LONG - SHORT}, each from a device at rest to a device at rest",
    "index_add": "the same iteration: gather, multiply, index_add to the bias, largest step of every head; inside a CUDA graph",
    "cuSPARSE": "one matrix times one vector, times the heads, inside a CUDA graph: no bias and no length of the step; "
    "it is compared with our product, which adds the bias, inside a CUDA graph",
    "gather_bytes": f"edges * max({SECTOR}, 4 heads): what the gathers of a graph without locality move if no cache helps",
}


def run(report: Report, options: Options) -> None:
    nodes, copied, repeats = (2_000, 1 << 16, 3) if options.quick else (1_000_000, 1 << 28, 5)
    report.settings["iteration"] = {"copied_numbers": copied, "repeats": repeats, **NOTES}
    copy = copy_time(copied, options.device)
    bandwidth = 8 * copied / copy.median
    for kind in KINDS:
        edge_index = structure(kind, nodes, options.seed, options.device)
        for heads in HEADS:
            options.say(f"iteration, {kind}, {heads} heads")
            case = measure(weighted(kind, edge_index, heads, options.seed), options.device, repeats)
            case.timings[COPY] = copy
            case.measured |= fractions(case, bandwidth)
            report.cases.append(case)
            report.targets += targets(case, kind, heads)
            options.keep(report)
            free(options.device)


def measure(problem: Regular, device: str, repeats: int) -> Case:
    case = Case(f"iteration, {problem.kind}, {problem.heads} heads", problem.settings())
    rows, weight, bias, kernels = problem.rows, problem.weight, problem.bias, backend(problem.bias)
    x = bias.flip(0)
    case.timings[OURS] = iteration_time(problem, device, repeats)
    case.timings[PRODUCT] = kernel_time(lambda: kernels.propagate(rows, weight, x, bias), device)
    case.errors[PRODUCT] = {"value": problem.away(x, kernels.propagate(rows, weight, x, bias))}
    step, _ = kernels.picard(*picard(problem, bias, x), 1)
    case.errors[OURS] = {"value": problem.away(x, step)}
    case.timings[INDEX_ADD] = kernel_time(partial(index_add_iteration, problem, x), device)
    if problem.heads in HALVED_HEADS:
        halve(case, problem, x, device)
    if problem.heads <= FEW:
        multiply(case, problem, x, device)
    values = problem.weight.nbytes + 3 * problem.bias.nbytes  # of the nodes: x, bias and y
    case.measured["bytes"] = values + rows.column.nbytes + rows.pointer.nbytes
    if problem.kind == "random":
        case.measured["gather_bytes"] = problem.edges * max(SECTOR, 4 * problem.heads)
    return case


def iteration_time(problem: Regular, device: str, repeats: int) -> Timing:
    """With no right-hand side a step stays in proportion to x, so that neither a goal of zero nor rounding ends a run."""
    kernels = backend(problem.bias)
    nothing = torch.zeros_like(problem.bias)
    arguments = picard(problem, nothing, problem.bias.flip(0))
    short = at_rest(Candidate(lambda _: kernels.picard(*arguments, SHORT)), device)
    long = at_rest(Candidate(lambda _: kernels.picard(*arguments, LONG)), device)
    taken = int(clocked(long)[1][1].max())  # also compiles
    assert taken == LONG, f"an iteration that was to go on ended after {taken} steps"
    clocked(short)
    return Timing([(clocked(long)[0] - clocked(short)[0]) / (LONG - SHORT) for _ in range(repeats)])


def picard(problem: Regular, bias: Tensor, x: Tensor) -> tuple[Any, ...]:
    """What the kernel of plain iteration is called with, all but the limit."""
    goal = torch.zeros_like(problem.contraction)
    operator = (problem.rows, problem.segments, problem.weight, bias, x)
    return *operator, "identity", "max", problem.contraction, goal


def index_add_iteration(problem: Regular, x: Tensor) -> tuple[Tensor, Tensor]:
    y = problem.bias.index_add(0, problem.row, problem.weight * x.index_select(0, problem.column))
    return y, (y - x).abs().amax(0)


def halve(case: Case, problem: Regular, x: Tensor, device: str) -> None:
    if device != "cuda":
        case.details[HALVED] = {"skipped": "weights are stored in bfloat16 on CUDA devices only"}
        return
    rows, bias, kernels, weight = problem.rows, problem.bias, backend(x), problem.weight.bfloat16()
    case.timings[HALVED] = kernel_time(lambda: kernels.propagate(rows, weight, x, bias), device)
    case.errors[HALVED] = {"value": problem.away(x, kernels.propagate(rows, weight, x, bias))}


def multiply(case: Case, problem: Regular, x: Tensor, device: str) -> None:
    if device != "cuda":
        case.details[SPARSE] = {"skipped": "there is no CUDA device"}
        return
    head, vector = problem.weight[:, 0].contiguous(), x[:, 0].contiguous()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its CSR a beta
        shape = (problem.nodes, problem.nodes)
        matrix = torch.sparse_csr_tensor(problem.rows.pointer, problem.rows.column, head, shape, check_invariants=False)
    single = kernel_time(lambda: matrix @ vector, device)
    case.timings[SPARSE] = Timing([problem.heads * seconds for seconds in single.seconds])


def fractions(case: Case, bandwidth: float) -> dict[str, float]:
    """Of the copy bandwidth, by the bytes that have to be moved at the least."""
    rate = {name: case.measured["bytes"] / case.timings[name].median / bandwidth for name in (OURS, PRODUCT)}
    return {"fraction_of_copy": rate[OURS], "fraction_of_copy_product": rate[PRODUCT]}


def targets(case: Case, kind: str, heads: int) -> list[Target]:
    found = [
        Target(f"{case.name}: fraction of the copy", case.measured["fraction_of_copy"], at_least=FRACTION[kind]),
        Target(f"{case.name}: index_add", case.ratio(INDEX_ADD), at_least=10),
    ]
    if heads <= FEW:
        found.append(Target(f"{case.name}: cuSPARSE over the product", case.ratio(SPARSE, ours=PRODUCT), at_least=1))
    return found
