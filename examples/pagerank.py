"""PageRank of a random graph of 100,000 pages, with a certificate, next to a plain power iteration in scipy.

    python examples/pagerank.py

The rank x = d P^T x + (1 - d)/N is a flow along the links: it contracts in the sum of absolute values, the norm in
which ranks are probabilities. It is the adjoint of the map that averages over a page's links, y = d P y + b, so that
map is built, and its transpose is solved.
"""

from __future__ import annotations

import time

import numpy
import torch
from scipy.sparse import csr_array

from convergent import Auto, Graph, LinearMap, solve, weights

PAGES, LINKS, DAMPING, TOLERANCE = 100_000, 1_000_000, 0.85, 1e-9


def random_links(seed: int) -> torch.Tensor:
    """Links [2, E] from a page to a page; few pages are linked to by very many. Every page has a link of its own."""
    generator = numpy.random.default_rng(seed)
    source = numpy.concatenate([numpy.arange(PAGES), generator.integers(PAGES, size=LINKS - PAGES)])
    target = (PAGES * generator.random(LINKS) ** 3).astype(numpy.int64)
    return torch.from_numpy(numpy.stack([source, target]))


def power_iteration(links: torch.Tensor, steps: int) -> numpy.ndarray:
    source, target = links.numpy()
    share = 1 / numpy.bincount(source, minlength=PAGES)[source]
    matrix = csr_array((share, (target, source)), shape=(PAGES, PAGES))  # parallel links add
    rank = numpy.full(PAGES, 1 / PAGES)
    for _ in range(steps):
        rank = DAMPING * (matrix @ rank) + (1 - DAMPING) / PAGES
    return rank


def main() -> None:
    links = random_links(seed=0)
    graph = Graph(links, num_nodes=PAGES)
    # equal logits: every link of a page gets the same share of its damping
    share = weights.softmax(graph, torch.zeros(LINKS, 1, dtype=torch.float64), gamma=DAMPING)
    restart = torch.full((PAGES, 1), (1 - DAMPING) / PAGES, dtype=torch.float64)
    ranks = LinearMap(graph, share, torch.zeros_like(restart)).transpose(restart)

    solve(ranks, Auto(tol=TOLERANCE))  # compiles the kernels
    began = time.perf_counter()
    solution = solve(ranks, Auto(tol=TOLERANCE))
    seconds = time.perf_counter() - began
    rank = solution.value.squeeze(1).numpy()

    # a step multiplies the error, at most 2 in the 1-norm, by the damping
    steps = int(numpy.ceil(numpy.log(TOLERANCE / 2) / numpy.log(DAMPING)))
    began = time.perf_counter()
    power = power_iteration(links, steps)
    theirs = time.perf_counter() - began
    exact = power_iteration(links, 2 * steps)

    error = float(abs(rank - exact).sum())
    bound = float(solution.error_bound)
    print(f"{PAGES:,} pages, {LINKS:,} links, damping {DAMPING}")
    print(f"convergent: {solution.method}, {solution.iterations} steps, sum of ranks {rank.sum():.12f}")
    print(f"  error in the 1-norm: certified {bound:.2e}, true {error:.2e}")
    print(f"scipy power iteration: {steps} steps, true error {abs(power - exact).sum():.2e}")
    print(f"  time of convergent / time of scipy, here and now: {seconds / theirs:.2f}")
    print("highest ranks:", ", ".join(f"{page} ({rank[page]:.2e})" for page in numpy.argsort(-rank)[:5]))
    if not error <= bound <= TOLERANCE:
        raise SystemExit("the certificate does not hold")


if __name__ == "__main__":
    main()
