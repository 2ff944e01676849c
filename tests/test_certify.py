from __future__ import annotations

import pytest
import torch

from convergent import Graph, LinearMap, Picard, certify, solve
from convergent.solvers.loop import amplification
from problems import DOUBLE, grid, random_batch, random_map, star, true_error


def leaky_line(length: int, leak: float) -> LinearMap:
    """A line whose ends lose half of everything: contraction 1 - leak in the max norm, and yet a small amplification."""
    index = torch.stack([torch.arange(length - 1), torch.arange(1, length)])
    graph = Graph(torch.cat([index, index.flip(0)], 1), length)
    share = (1 - leak) / graph.out_degree.to(DOUBLE)[graph.row.long()].unsqueeze(1)
    share[(graph.row == 0) | (graph.row == length - 1)] *= 0.5
    return LinearMap(graph, share, torch.ones(length, 1, dtype=DOUBLE))


def test_plain_amplification_of_a_known_map() -> None:
    torch.testing.assert_close(certify.plain_amplification(torch.tensor([[0.5, 0.9]])), torch.tensor([[2.0, 10.0]]))


@pytest.mark.parametrize("transposed", [False, True])
def test_tight_amplification_is_the_norm_of_the_inverse(transposed: bool) -> None:
    fixed = random_map(random_batch([9], 2, 3), heads=2, gamma=0.99, kind="signed")
    fixed = fixed.transpose() if transposed else fixed
    matrix = fixed.as_dense().abs()
    inverse = torch.linalg.inv(torch.eye(9, dtype=DOUBLE) - matrix)
    best = inverse.sum(1 if transposed else 2).amax(1)
    factor = amplification(fixed)[0]
    assert (factor >= best).all()
    assert (factor <= 1.25 * best).all()


def test_tight_is_far_sharper_near_one() -> None:
    fixed = leaky_line(50, 1e-7)
    plain, tight = certify.plain_amplification(fixed.contraction), amplification(fixed)
    assert plain > 9e6
    assert tight < 2000
    solution = solve(fixed, Picard(tol=1e-8, certify="tight"))
    assert true_error(solution, fixed) <= solution.error_bound
    assert solution.error_bound <= 1e-8


def test_tight_proves_nothing_with_a_bad_vector() -> None:
    dominating = random_map(random_batch([9], 2, 3), gamma=0.99).dominating()
    assert (certify.tight_amplification(dominating, torch.zeros(9, 2, dtype=DOUBLE)) == torch.inf).all()
    assert (certify.tight_amplification(dominating, -torch.ones(9, 2, dtype=DOUBLE)) == torch.inf).all()


def test_the_star_graph_converges_although_its_spectral_norm_exceeds_one() -> None:
    graph = Graph(star(30), 31)
    weight = 0.9 / graph.out_degree.to(DOUBLE)[graph.row.long()].unsqueeze(1)
    fixed = LinearMap(graph, weight, torch.ones(31, 1, dtype=DOUBLE))
    assert torch.linalg.matrix_norm(fixed.as_dense()[0], 2) > 1
    assert fixed.contraction.item() == pytest.approx(0.9)
    solution = solve(fixed)
    assert true_error(solution, fixed) <= solution.error_bound <= 1e-6


def test_rounding_covers_the_evaluation_of_the_defect() -> None:
    fixed = random_map(Graph(grid(8, 8), 64), gamma=0.999)
    x = 1e3 * torch.randn(64, 2, dtype=DOUBLE)
    size, bias_size = fixed.size(x), fixed.size(fixed.bias)
    low = fixed.defect(x).numpy()
    wide = fixed.as_dense().numpy().astype("longdouble")
    exact = (wide @ x.T.numpy()[..., None].astype("longdouble"))[..., 0].T + fixed.bias.numpy() - x.numpy()
    error = fixed.size(torch.from_numpy(abs(exact - low).astype("float64")))
    assert (error <= certify.rounding(fixed, fixed.contraction, size, bias_size)).all()
    assert (error > 0).any()
