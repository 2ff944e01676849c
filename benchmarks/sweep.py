"""One pass over the edges: the product y = W x + b, an iteration with its residual, transpose, edge gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import OURS, Candidate, interleave
from benchmarks.options import Options
from benchmarks.peers import missing, products
from benchmarks.report import Case, Report, Target
from benchmarks.workloads import Workload, random
from convergent.kernels import backend

TRIAD, MKL, SCIPY = "STREAM triad", "torch sparse CSR (MKL)", "scipy CSR"
INDEX_ADD, SCATTER, SEGMENT = "index_add", "PyG scatter", "PyG segment"
SIZES = {"W2": (10_000, 50_000, 2), "W3": (100_000, 1_000_000, 16), "W4": (1_000_000, 10_000_000, 4)}
QUICK_SIZES = {"W2": (500, 2_500, 2), "W3": (1_000, 10_000, 16), "W4": (2_000, 20_000, 4)}
ITERATIONS = 8  # in one native call


def by_head(x: Tensor) -> Tensor:
    """[N, H] -> [H, N]"""
    return x.t().contiguous()


def run(options: Options) -> Report:
    rounds = 3 if options.quick else 15
    triad_bytes = (24 if options.quick else 3 * 256) << 20
    settings = {"rounds": rounds, "budget": options.budget(20.0), "triad_bytes": triad_bytes, "iterations": ITERATIONS}
    report = Report("sweep", options.quick, options.seed, {**settings, "bytes": "weights + columns + pointers + bias + x + y"})
    for name, (nodes, edges, heads) in (QUICK_SIZES if options.quick else SIZES).items():
        options.say(name)
        work = random(nodes, edges, heads, 0.9, options.seed)
        x = torch.randn(nodes, heads, generator=torch.Generator().manual_seed(options.seed + 1))
        limit = triad(triad_bytes) if name == "W3" else None
        for make in (product_case, iteration_case, transpose_case, gradient_case):
            case, candidates = make(name, work, x)
            if limit is not None and make in (product_case, iteration_case):
                candidates[TRIAD] = limit
            case.timings = interleave(candidates, rounds, settings["budget"])
            case.measured = bandwidth(case, bytes_moved(work), triad_bytes)
            report.cases.append(case)
    report.targets = targets({case.name: case for case in report.cases})
    return report


def targets(cases: dict[str, Case]) -> list[Target]:
    wanted = {"W3": {INDEX_ADD: 15, SCATTER: 15, MKL: 2.5}, "W4": {INDEX_ADD: 10, MKL: 1.8}}
    found = []
    for kind in ("product", "iteration"):
        fraction = cases[f"W3 {kind}"].measured.get("fraction_of_triad")
        found.append(Target(f"W3 {kind}, fraction of the triad", fraction, at_least=0.7))
        for size, peers in wanted.items():
            case = cases[f"{size} {kind}"]
            found += [Target(f"{case.name}, {peer} over ours", case.ratio(peer), at_least=ratio) for peer, ratio in peers.items()]
    return found


# --- the four cases ---


def product_case(name: str, work: Workload, x: Tensor) -> tuple[Case, dict[str, Candidate]]:
    kernels, rows = backend(x), work.graph.rows
    ours = Candidate(lambda _: kernels.propagate(rows, work.weight, x, work.bias))
    case = Case(f"{name} product", work.settings())
    candidates = {OURS: ours, **product_peers(work, x, case, lambda y, _: y)}
    check(case, candidates, products.reference_product(work, x))
    return case, candidates


def iteration_case(name: str, work: Workload, x: Tensor) -> tuple[Case, dict[str, Candidate]]:
    """A Picard step and the max norm of its residual per head: ours several in one native loop, as in a solve."""
    kernels, graph = backend(x), work.graph
    factor, goal = (torch.full((1, work.heads), value, dtype=torch.float64) for value in (work.gamma, 0.0))
    operator = (graph.rows, graph.segments, work.weight, work.bias)

    def iterate(steps: int) -> Tensor:
        return kernels.picard(*operator, x, "identity", "max", factor, goal, steps)[0]

    case = Case(f"{name} iteration", work.settings())
    peers = product_peers(work, x, case, with_residual)
    once = {OURS: Candidate(lambda _: iterate(1)), **peers}
    check(case, once, products.reference_product(work, x))
    return case, {OURS: Candidate(lambda _: iterate(ITERATIONS), count=ITERATIONS), **peers}


def transpose_case(name: str, work: Workload, x: Tensor) -> tuple[Case, dict[str, Candidate]]:
    kernels, rows = backend(x), work.graph.transpose().rows
    peer = products.index_add_transpose(work)
    case = Case(f"{name} transpose", {**work.settings(), "weights": "read through the order of the transposed rows"})
    candidates = {
        OURS: Candidate(lambda _: kernels.propagate(rows, work.weight, x)),
        INDEX_ADD: Candidate(lambda _: peer(x)),
    }
    exact = torch.zeros_like(x, dtype=torch.float64)
    exact.index_add_(0, work.column, work.weight.double() * x.double()[work.row])
    check(case, candidates, exact)
    return case, candidates


def gradient_case(name: str, work: Workload, x: Tensor) -> tuple[Case, dict[str, Candidate]]:
    kernels, graph, u = backend(x), work.graph, work.bias
    case = Case(f"{name} edge gradient", work.settings())
    candidates = {
        OURS: Candidate(lambda _: kernels.edge_product(graph.row, graph.column, u, x)),
        "torch gather": Candidate(lambda _: u.index_select(0, work.row) * x.index_select(0, work.column)),
    }
    check(case, candidates, u.double()[work.row] * x.double()[work.column])
    return case, candidates


def product_peers(work: Workload, x: Tensor, case: Case, then: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Candidate]:
    """Everybody else's product, each on x in the layout it likes; ``then`` goes on with y and that x."""
    makers: dict[str, tuple[Callable[[Workload], products.Product], str, Callable[[Tensor], Tensor]]] = {
        INDEX_ADD: (products.index_add_product, "torch", lambda x: x),
        SCATTER: (products.scatter_product, "torch_geometric", lambda x: x),
        SEGMENT: (products.segment_product, "torch_geometric", lambda x: x),
        MKL: (products.mkl_product, "torch", by_head),
        SCIPY: (products.scipy_product, "scipy", by_head),
    }
    candidates = {}
    for name, (make, package, layout) in makers.items():
        if reason := missing(package):
            case.details[name] = {"skipped": reason}
            continue
        product, source = make(work), layout(x)
        candidates[name] = Candidate(partial(_apply, product, source, then))
        case.details[name] = {"layout": "[H, N]" if layout is by_head else "[N, H]"}
    return candidates


def _apply(product: products.Product, x: Tensor, then: Callable[[Tensor, Tensor], Tensor], _: None) -> Tensor:
    return then(product(x), x)


def with_residual(y: Tensor, x: Tensor) -> Tensor:
    """Also takes the max norm of the step for every head, [N, H] or [H, N]."""
    (y - x).abs().amax(int(x.shape[0] < x.shape[1]))
    return y


def check(case: Case, candidates: dict[str, Candidate], exact: Tensor) -> None:
    for name, candidate in candidates.items():
        answer = candidate.run(None)
        answer = answer if answer.shape == exact.shape else answer.t()
        case.errors[name] = {"value": float((answer.double() - exact).abs().max())}


# --- the limit ---


@numba.njit(parallel=True)
def _triad(out: np.ndarray, left: np.ndarray, right: np.ndarray, factor: float) -> None:
    for i in numba.prange(len(out)):
        out[i] = left[i] + factor * right[i]


def triad(total: int) -> Candidate:
    """STREAM's triad over three arrays of ``total`` bytes together, the number of bytes it is credited with."""
    out, left, right = (np.ones(total // 3 // 8) for _ in range(3))
    return Candidate(lambda _: _triad(out, left, right, 3.0))


def bytes_moved(work: Workload) -> int:
    """What one pass has to read and write at the least: every array once, however often x is gathered."""
    nodes = 3 * work.num_nodes * work.heads * 4  # bias, x, y
    return work.weight.numel() * 4 + work.num_edges * 4 + (work.num_nodes + 1) * 4 + nodes


def bandwidth(case: Case, moved: int, triad_bytes: int) -> dict[str, Any]:
    if TRIAD not in case.timings:
        return {}
    ours, limit = case.timings[OURS], case.timings[TRIAD]
    return {
        "bytes": moved,
        "gb_per_s": moved / ours.median / 1e9,
        "gb_per_s_triad": triad_bytes / limit.median / 1e9,
        "fraction_of_triad": (moved / ours.median) / (triad_bytes / limit.median),
        "fraction_of_triad_min": (moved / ours.minimum) / (triad_bytes / limit.minimum),
    }
