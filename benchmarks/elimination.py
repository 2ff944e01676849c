"""Rows that sum to all but one, pinned at a few nodes: elimination of pore networks, forward, adjoint and certificate.

Conductances spread over decades, as in rock. A pore on the inlet or the outlet is pinned: it reads nobody. Every other one is a
mean of its neighbours, weighted by a power of the conductances that differs from head to head, less a loss. Everybody
factorises I - W once per round, solves for the answer and for the certificate's right-hand side 1, and the transposed system
for the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from math import fsum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import Candidate, at_rest, interleave
from benchmarks.options import Options
from benchmarks.peers import missing
from benchmarks.report import Case, Report, Target
from convergent import Auto, Graph, LinearMap, Solution, solve
from convergent.kernels import backend
from convergent.kernels.elimination import Symbolic, analyse, factor
from convergent.tasks.pore_network import PoreNetworks

OURS, FORWARD = "solve", "solve, forward"  # Auto, certified
KERNELS, SYMBOLIC = "elimination alone", "symbolic step"
TOL = 1e-8
DENSE, SPLU, SPSOLVE = "padded torch.linalg.solve", "splu, graph by graph", "spsolve, forward"
CG = "conjugate gradients with pyamg, forward"
CASES = ((16, 100, 4), (64, 200, 4), (4, 1000, 4), (1, 6000, 4), (1, 6000, 1))  # graphs, pores, heads
LARGE = 100_000  # pores of the largest network
LOSSES = (0.0, 1e-12, 1e-9, 1e-6, 1e-3)
TIMED = 1e-6  # the loss at which times are taken, which hardly depend on it
GRAIN = 2.0**53  # weights are whole multiples of 1 / GRAIN, so that rows sum to what they are meant to
MOST = 1 << 28  # bytes of a padded dense matrix that are still tried


@dataclass(frozen=True)
class Rock:
    """A batch of pore networks as a linear system in float64."""

    graph: Graph
    weight: Tensor  # [E, H]
    right: Tensor  # [2, N, H]: a source, and the certificate's ones
    adjoint: Tensor  # [1, N, H]
    conductance: np.ndarray  # [N] of all throats of a pore, in the first head

    @property
    def heads(self) -> int:
        return self.weight.shape[1]

    def to(self, device: str) -> Rock:
        return Rock(self.graph.to(device), self.weight.to(device), self.right.to(device), self.adjoint.to(device), self.conductance)

    @cached_property
    def symbolic(self) -> Symbolic:
        return analyse(self.graph.rows, self.graph.segments)

    @cached_property
    def matrices(self) -> list[list[Any]]:
        """I - W of every graph and head as scipy's sparse arrays."""
        from scipy.sparse import csc_array, eye_array

        row, column, found = self.graph.row.numpy(), self.graph.column.numpy(), []
        for first, last in zip(self.graph.segments[:-1].tolist(), self.graph.segments[1:].tolist(), strict=True):
            mine = np.flatnonzero((row >= first) & (row < last))
            ends, size = (row[mine] - first, column[mine] - first), last - first
            weights = self.weight[mine].numpy().T
            found.append([(eye_array(size) - csc_array((values, ends), shape=(size, size))).tocsc() for values in weights])
        return found


def run(options: Options) -> Report:
    rounds = 2 if options.quick else 7
    settings = {"losses": LOSSES, "timed_at_loss": TIMED, "rounds": rounds, "dtype": "float64", "device": options.device}
    report = Report("elimination", options.quick, options.seed, settings)
    for graphs, pores, heads in ((4, 60, 2),) if options.quick else CASES:
        rng = np.random.default_rng(options.seed)
        networks = [PoreNetworks((pores, pores), wide=True).network(rng) for _ in range(graphs)]
        case = Case(f"{graphs} x {pores} pores, {heads} heads", {"graphs": graphs, "pores": pores, "heads": heads}, ours=OURS)
        options.say(case.name)
        measure(case, partial(rock, networks, heads), options, rounds)
        report.cases.append(case)
        report.targets += targets(case, graphs, options.device)
        options.keep(report)
    if not options.quick and options.device == "cpu":
        case = large(options)
        report.cases.append(case)
        report.targets.append(Target(f"{case.name}: {CG} over ours", case.ratio(CG), at_least=3.0))
    return report


def targets(case: Case, graphs: int, device: str) -> list[Target]:
    wanted = {DENSE: 3.0} if device != "cpu" else {DENSE: 20.0, SPLU: 5.0} if graphs > 1 else {SPLU: 5.0}
    found = [Target(f"{case.name}: {peer} over ours", case.ratio(peer), at_least=least) for peer, least in wanted.items()]
    if SPSOLVE in case.timings:
        found.append(Target(f"{case.name}: {SPSOLVE} over ours", case.ratio(SPSOLVE, FORWARD), at_least=3.0))
    return found


# --- problems ---


def rock(networks: list[Any], heads: int, loss: float) -> Rock:
    sizes = [len(network.position) for network in networks]
    starts = np.cumsum([0, *sizes])
    ends = np.concatenate([network.throats + start for network, start in zip(networks, starts, strict=False)])
    row, column = np.concatenate([ends, ends[:, ::-1]]).T
    conductance = np.tile(np.concatenate([network.conductance for network in networks]), 2)
    pinned = np.concatenate([network.inlet | network.outlet for network in networks])
    weight = np.stack([conductance**power for power in np.linspace(0.8, 1.0, heads)], axis=1)
    total = np.bincount(row, weight[:, 0], int(starts[-1]))
    weight = with_sums(weight, row, int(starts[-1]), loss)
    weight[pinned[row]] = 0.0
    graph = Graph(torch.from_numpy(np.stack([row, column])), int(starts[-1]), torch.repeat_interleave(torch.tensor(sizes)))
    right = torch.rand(3, int(starts[-1]), heads, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    right[1] = 1.0
    return Rock(graph, torch.from_numpy(weight), right[:2].contiguous(), right[2:].contiguous(), total)


def with_sums(weight: np.ndarray, row: np.ndarray, nodes: int, loss: float) -> np.ndarray:
    """Rows that sum to exactly 1 - loss, to the grain: what rounding leaves goes to the largest weight of a row."""
    order = np.argsort(row, kind="stable")
    begin = np.searchsorted(row[order], np.arange(nodes))
    used = begin < np.append(begin[1:], len(row))
    for head in range(weight.shape[1]):
        values = weight[:, head] / np.bincount(row, weight[:, head], nodes)[row]
        values = np.floor(values * (GRAIN * (1 - loss)))
        missing = np.floor(GRAIN * (1 - loss)) - np.bincount(row, values, nodes)
        largest = order[np.lexsort((values[order], row[order]))][np.append(begin[1:], len(row))[used] - 1]
        values[largest] += missing[used]
        weight[:, head] = values / GRAIN
    return weight


# --- everybody ---


def measure(case: Case, make: Callable[[float], Rock], options: Options, rounds: int) -> None:
    work = make(TIMED).to(options.device)
    candidates = {OURS: Candidate(lambda _: ours(work)), FORWARD: Candidate(lambda _: forward(work))}
    candidates[KERNELS] = Candidate(lambda _: kernels(work))
    candidates[SYMBOLIC] = Candidate(lambda _: analyse(work.graph.rows, work.graph.segments))
    solvers: dict[str, Callable[[Rock], Tensor]] = {KERNELS: lambda rocks: kernels(rocks)[0][0]}
    if 8 * work.graph.num_graphs * work.heads * work.graph.largest**2 <= MOST:
        candidates[DENSE] = Candidate(lambda _: dense(work))
        solvers[DENSE] = lambda rocks: dense(rocks)[0][0]
    else:
        case.details[DENSE] = {"skipped": f"padded matrices of more than {MOST >> 20} MiB"}
    if options.device == "cpu":
        work.matrices  # noqa: B018 - assembled outside the clock: a gift to the peers
        candidates[SPLU] = Candidate(lambda _: factors_of_scipy(work))
        candidates[SPSOLVE] = Candidate(lambda _: spsolve(work))
        solvers[SPLU] = lambda rocks: factors_of_scipy(rocks)[0]
    symbolic = work.symbolic
    case.measured = {
        "nodes": work.graph.num_nodes,
        "edges": work.graph.num_edges,
        "fill over edges": float(symbolic.fill.sum() / work.graph.num_edges),
        "multiply-adds of a head": float(symbolic.flops.sum()),
    }
    for name in candidates:
        case.errors[name] = {}
    for loss in LOSSES:
        options.say(f"{case.name}: errors at a loss of {loss:g}")
        rocks = make(loss)
        truth = refined(rocks)
        for name, answer in solvers.items():
            found = answer(rocks.to(options.device)).cpu().numpy()
            case.errors[name][f"largest relative error at {loss:g}"] = float((np.abs(found - truth) / truth).max())
    options.say(f"{case.name}: rounds")
    resting = {name: at_rest(candidate, options.device) for name, candidate in candidates.items()}
    case.timings = interleave(resting, rounds, options.budget(20.0), ours=OURS)


def ours(work: Rock) -> Tensor:
    """The gradient of the weights [E, H] through a certified solve."""
    weight = work.weight.clone().requires_grad_()
    solution = solve(LinearMap(work.graph, weight, work.right[0]), Auto(tol=TOL, certify="tight"))
    (gradient,) = torch.autograd.grad(solution.value, weight, work.adjoint[0])
    return gradient


def forward(work: Rock) -> Solution:
    """A certified solve; weights are a new tensor, so that their factors are made anew."""
    with torch.no_grad():
        return solve(LinearMap(work.graph, work.weight.clone(), work.right[0]), Auto(tol=TOL, certify="tight"))


def kernels(work: Rock) -> tuple[Tensor, Tensor, Tensor]:
    """Answer and certificate [2, N, H], adjoint [1, N, H] and the gradient of the weights [E, H]."""
    factors, x = factor(work.symbolic, work.weight, work.right)
    assert x is not None
    y = factors.solve_transposed(work.adjoint)
    return x, y, backend(x).edge_product(work.graph.row, work.graph.column, y[0], x[0])


def dense(work: Rock) -> tuple[Tensor, Tensor]:
    """The same by autograd through a padded dense solve."""
    graph, size = work.graph, work.graph.largest
    start = graph.segments[:-1].long()[graph.batch]
    slot, heads = torch.arange(graph.num_nodes, device=graph.device) - start, torch.arange(work.heads, device=graph.device)
    weight = work.weight.clone().requires_grad_()
    matrix = torch.eye(size, dtype=torch.float64, device=graph.device).repeat(graph.num_graphs, work.heads, 1, 1)
    place = (graph.batch[graph.row][:, None], heads[None, :], slot[graph.row][:, None], slot[graph.column][:, None])
    matrix = matrix.index_put(place, -weight, accumulate=True)
    right = torch.zeros(graph.num_graphs, size, work.heads, 2, dtype=torch.float64, device=graph.device)
    right[graph.batch, slot] = work.right.permute(1, 2, 0)
    x = torch.linalg.solve(matrix, right.transpose(1, 2))  # [G, H, n, 2]
    x = x.transpose(1, 2)[graph.batch, slot].permute(2, 0, 1)
    (gradient,) = torch.autograd.grad(x[0], weight, work.adjoint[0])
    return x.detach(), gradient


def factors_of_scipy(work: Rock) -> Tensor:
    from scipy.sparse.linalg import splu

    out = np.empty(tuple(work.right.shape))
    right, adjoint = work.right.numpy(), work.adjoint.numpy()
    for graph, first in enumerate(work.graph.segments[:-1].tolist()):
        for head, matrix in enumerate(work.matrices[graph]):
            nodes = slice(first, first + matrix.shape[0])
            factors = splu(matrix)
            out[:, nodes, head] = factors.solve(right[:, nodes, head].T).T
            factors.solve(adjoint[0, nodes, head], "T")
    return torch.from_numpy(out)


def spsolve(work: Rock) -> None:
    from scipy.sparse.linalg import spsolve as solve

    for graph, first in enumerate(work.graph.segments[:-1].tolist()):
        for head, matrix in enumerate(work.matrices[graph]):
            solve(matrix, work.right[0, first : first + matrix.shape[0], head].numpy())


# --- the truth ---


def refined(work: Rock) -> np.ndarray:
    """The answer in extended precision: residuals of s_i x_i + sum_j w_ij (x_i - x_j) = b_i, where nothing cancels, corrected."""
    row, column = work.graph.row.numpy(), work.graph.column.numpy()
    weight, right = work.weight.numpy().astype(np.longdouble), work.right[0].numpy().astype(np.longdouble)
    slack = slacks(work).astype(np.longdouble)
    factors, _ = factor(work.symbolic, work.weight)
    x = np.zeros_like(right)
    for _ in range(6):
        flow = np.zeros_like(right)
        np.add.at(flow, row, weight * (x[row] - x[column]))
        x += factors.solve(torch.from_numpy((right - slack * x - flow).astype(np.float64))).numpy()
    return x


def slacks(work: Rock) -> np.ndarray:
    pointer, _, order = work.graph.rows
    weight = (work.weight if order is None else work.weight[order]).tolist()
    lanes = range(work.heads)
    spans = zip(pointer[:-1].tolist(), pointer[1:].tolist(), strict=True)
    return np.array([[fsum([1.0, *(-edge[head] for edge in weight[a:b])]) for head in lanes] for a, b in spans])


def large(options: Options) -> Case:
    """What elimination of a large network would cost, and what it takes to know."""
    options.say(f"{LARGE} pores")
    rng = np.random.default_rng(options.seed)
    work = rock([PoreNetworks((LARGE, LARGE), wide=True).network(rng)], 1, TIMED)
    case = Case(f"1 x {LARGE} pores, 1 head", {"graphs": 1, "pores": LARGE, "heads": 1}, ours=FORWARD)
    symbolic = work.symbolic
    case.measured = {
        "nodes": work.graph.num_nodes,
        "edges": work.graph.num_edges,
        "fill over edges": float(symbolic.fill.sum() / work.graph.num_edges),
        "multiply-adds of a head": float(symbolic.flops.sum()),
    }
    candidates = {FORWARD: Candidate(lambda _: forward(work)), OURS: Candidate(lambda _: ours(work))}
    candidates[SYMBOLIC] = Candidate(lambda _: analyse(work.graph.rows, work.graph.segments))
    answers = {FORWARD: kernels(work)[0][0].numpy()}
    if reason := missing("pyamg"):
        case.details[CG] = {"skipped": reason}
    else:
        candidates[CG], answers[CG] = Candidate(lambda _: multigrid(work)), multigrid(work)
    truth = refined(work)
    for name, found in answers.items():
        case.errors[name] = {f"largest relative error at {TIMED:g}": float((np.abs(found - truth) / truth).max())}
    case.timings = interleave(candidates, 3, options.budget(20.0), ours=FORWARD)
    return case


def multigrid(work: Rock) -> np.ndarray:
    """Conjugate gradients with pyamg as preconditioner, on the symmetric form: conductances, and pinned pores taken out."""
    import pyamg
    from scipy.sparse import diags_array

    ((matrix,),) = work.matrices
    right, nodes = work.right[0].numpy(), matrix.shape[0]
    pinned = np.bincount(work.graph.row.numpy(), work.weight[:, 0].numpy(), nodes) == 0
    free = np.flatnonzero(~pinned)
    out = right.copy()
    source = right[free, 0] - matrix[free][:, np.flatnonzero(pinned)] @ right[pinned, 0]
    inner = (diags_array(work.conductance[free]) @ matrix[free][:, free]).tocsr()
    levels = pyamg.smoothed_aggregation_solver(inner)
    out[free, 0] = levels.solve(work.conductance[free] * source, tol=1e-10, maxiter=500, accel="cg")
    return out
