"""Backward against forward where rows sum to almost one: chains in any shape of batch, and PageRank in the sum of its ranks.

A chain's adjoint has columns that sum to more than one, and PageRank's rows do: each contracts in one norm only. A backward
solve through the same factors, or the same steps, should cost about as much as the forward one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import Candidate, interleave
from benchmarks.options import Options
from benchmarks.report import Case, Report, Target
from convergent import Auto, Graph, LinearMap, Solution, solve, weights

FORWARD, BACKWARD = "forward", "backward"
TOL = 1e-7  # certified, on answers whose largest entry (chains) or whose sum (PageRank) is about one
EXACT = 1e-12  # what ranks are compared with comes as close to it as float64 allows
GAMMA = 0.9999  # of chains
CHAINS, LENGTH, HEADS = 40, 100, 4
DAMPINGS = (0.85, 0.99, 0.9999)
PAGES, LINKS = 20_000, 200_000
SOLVER = Auto(tol=TOL)
MOST = 2.0  # times the forward pass


@dataclass(frozen=True)
class Problem:
    """x = W x + b in float64, or its transpose."""

    graph: Graph
    weight: Tensor  # [E, H], rows that sum to less than one
    bias: Tensor  # [N, H]
    cotangent: Tensor  # [N, H]
    transposed: bool = False

    def leaves(self) -> Problem:
        """New tensors that want gradients, as every training step has them."""
        weight, bias = (part.clone().requires_grad_() for part in (self.weight, self.bias))
        return replace(self, weight=weight, bias=bias)

    def map(self) -> LinearMap:
        if self.transposed:
            return LinearMap(self.graph, self.weight, torch.zeros_like(self.bias)).transpose(self.bias)
        return LinearMap(self.graph, self.weight, self.bias)

    def solve(self, solver: Auto = SOLVER) -> Solution:
        return solve(self.map(), solver)

    def exact(self) -> tuple[Tensor, ...]:
        """The answer and the gradients: by splu, or for PageRank, whose factors fill in, by our own solver at its limit."""
        if self.transposed:
            step = self.leaves()
            solution = step.solve(Auto(tol=EXACT, throw=False))
            return solution.value.detach(), *step.gradients(solution)
        from scipy.sparse import csc_array, eye_array
        from scipy.sparse.linalg import splu

        ends, size = (self.graph.row.numpy(), self.graph.column.numpy()), self.graph.num_nodes
        x, y = torch.empty_like(self.bias), torch.empty_like(self.bias)
        for head, values in enumerate(self.weight.t().numpy()):
            factors = splu((eye_array(size) - csc_array((values, ends), shape=(size, size))).tocsc())
            x[:, head] = torch.from_numpy(factors.solve(self.bias[:, head].numpy()))
            y[:, head] = torch.from_numpy(factors.solve(self.cotangent[:, head].numpy(), "T"))
        return x, y[self.graph.row] * x[self.graph.column], y

    def gradients(self, solution: Solution) -> tuple[Tensor, ...]:
        return torch.autograd.grad(solution.value, (self.weight, self.bias), self.cotangent)


def run(options: Options) -> Report:
    rounds = 3 if options.quick else 31
    settings = {"tol": TOL, "rounds": rounds, "dtype": "float64"}
    report = Report("adjoint", options.quick, options.seed, settings)
    for name, problem in problems(options).items():
        options.say(name)
        report.cases.append(measure(name, problem, rounds, options))
        ratio = report.cases[-1].ratio(BACKWARD)
        report.targets.append(Target(f"{name}: backward over forward", ratio, at_most=MOST))
        options.keep(report)
    return report


def measure(name: str, problem: Problem, rounds: int, options: Options) -> Case:
    sizes = {"nodes": problem.graph.num_nodes, "edges": problem.graph.num_edges, "graphs": problem.graph.num_graphs}
    case = Case(name, {**sizes, "heads": problem.weight.shape[1], "tol": TOL}, ours=FORWARD)

    def solved() -> tuple[Problem, Solution]:
        step = problem.leaves()
        return step, step.solve()

    (step, solution), exact = solved(), problem.exact()
    off = float((solution.value.detach() - exact[0]).abs().max())
    case.errors[FORWARD] = {"value": off, "bound": float(solution.error_bound.max())}
    pairs = zip(("weight", "bias"), step.gradients(solution), exact[1:], strict=True)
    case.errors[BACKWARD] = {f"{of} gradient": float((mine - fine).abs().max() / fine.abs().max()) for of, mine, fine in pairs}
    case.details[FORWARD] = {"method": solution.method, "iterations": solution.iterations}
    candidates = {
        FORWARD: Candidate(lambda step: step.solve(), prepare=problem.leaves),
        BACKWARD: Candidate(lambda pair: pair[0].gradients(pair[1]), prepare=solved),
    }
    case.timings = interleave(candidates, rounds, options.budget(20.0), ours=FORWARD)
    return case


# --- problems ---


def problems(options: Options) -> dict[str, Problem]:
    count, length, pages, links = (4, 20, 200, 2_000) if options.quick else (CHAINS, LENGTH, PAGES, LINKS)
    shapes = {
        f"{count} chains of {length} as one graph": chains(count, length, graphs=1),
        f"{count} chains of {length} as {count} graphs": chains(count, length, graphs=count),
        f"1 chain of {count * length}": chains(1, count * length, graphs=1),
        f"{count * length // 10} chains of 10 as one graph": chains(count * length // 10, 10, graphs=1),
        f"{count} one-way chains of {length} as one graph": chains(count, length, graphs=1, both_ways=False),
    }
    ranks = {f"PageRank of {pages} pages, damping {each}": page_rank(pages, links, each, options.seed) for each in DAMPINGS}
    return shapes | ranks


def chains(count: int, length: int, graphs: int, both_ways: bool = True) -> Problem:
    """Every node reads its neighbours, or the next one only, with random weights; chains side by side or each a graph."""
    generator = torch.Generator().manual_seed(0)
    node = torch.arange(count * length).view(count, length)
    ahead = torch.stack([node[:, :-1].flatten(), node[:, 1:].flatten()])
    edges = torch.cat([ahead, ahead.flip(0)], 1) if both_ways else ahead
    batch = None if graphs == 1 else torch.arange(count).repeat_interleave(length)
    graph = Graph(edges, count * length, batch)
    logits = torch.randn(edges.shape[1], HEADS, generator=generator, dtype=torch.float64)
    weight = weights.softmax(graph, logits, gamma=GAMMA)
    bias, cotangent = torch.randn(2, count * length, HEADS, generator=generator, dtype=torch.float64)
    return Problem(graph, weight, (1 - GAMMA) * bias, cotangent)


def page_rank(pages: int, links: int, damping: float, seed: int) -> Problem:
    """Ranks of a random graph in which few pages are linked to by very many, and every page links to some."""
    random = np.random.default_rng(seed)
    source = np.concatenate([np.arange(pages), random.integers(pages, size=links - pages)])
    target = (pages * random.random(links) ** 3).astype(np.int64)
    graph = Graph(torch.from_numpy(np.stack([source, target])), pages)
    share = weights.softmax(graph, torch.zeros(links, 1, dtype=torch.float64), gamma=damping)
    restart = torch.full((pages, 1), (1 - damping) / pages, dtype=torch.float64)
    cotangent = torch.randn(pages, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return Problem(graph, share, restart, cotangent, transposed=True)
