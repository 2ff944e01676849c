from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from convergent import (
    GMRES,
    ActivatedMap,
    Anderson,
    Auto,
    BiCGStab,
    ConvergenceError,
    Deflated,
    Direct,
    Graph,
    Implicit,
    LinearMap,
    Multigrid,
    OneStep,
    Picard,
    Solution,
    Status,
    Unrolled,
    certify,
    solve,
    weights,
)
from convergent.kernels import using
from convergent.solvers import Solver
from convergent.solvers.loop import amplification
from problems import DOUBLE, PHI, grid, random_batch, random_map, star, true_error

LINEAR = [Picard, Anderson, BiCGStab, GMRES, Direct, Deflated, Multigrid, Auto]


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
    plain = certify.plain_amplification(dominating.contraction)
    for bad in (torch.zeros(9, 2, dtype=DOUBLE), -torch.ones(9, 2, dtype=DOUBLE)):
        torch.testing.assert_close(certify.tight_amplification(dominating, bad), plain)


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


# --- converged: if and only if the bound is within the tolerance ---


def says_what_it_means(solution: Solution, fixed: LinearMap | ActivatedMap, tol: float, rtol: float) -> None:
    """Status, bound, value and true error agree in every graph and head."""
    size = fixed.size(solution.value.detach())
    allowed = tol + rtol * size
    converged = solution.status == Status.CONVERGED
    assert torch.equal(converged, (solution.error_bound <= allowed) & torch.isfinite(solution.error_bound))
    assert torch.equal(solution.converged, converged.all(1))
    assert not torch.isnan(solution.error_bound).any()
    assert torch.isfinite(size[converged]).all()
    # the last digits of what is compared with: it is rounded as well
    truth = 3e-19 * size + 1e-300
    assert ((true_error(solution, fixed) <= solution.error_bound * (1 + 1e-15) + truth) | ~torch.isfinite(size)).all()


@dataclass(frozen=True)
class Trial:
    """A map, a method and its settings, as hypothesis draws them."""

    sizes: tuple[int, ...]
    degree: float
    heads: int
    gamma: float
    kind: str
    activation: str | None
    transposed: bool
    float32: bool
    exponents: tuple[float, ...]  # of the size of the bias, for one graph and head after the other
    whole: bool
    method: int
    settings: dict[str, Any]
    start: float | None
    reference: bool
    seed: int

    def map(self) -> LinearMap | ActivatedMap:
        dtype = torch.float32 if self.float32 else DOUBLE
        graph = random_batch(list(self.sizes), self.degree, self.seed)
        draw = torch.Generator().manual_seed(self.seed)
        logits = 3 * torch.randn(graph.num_edges, self.heads, generator=draw, dtype=dtype)
        lanes = graph.num_graphs * self.heads
        exponent = torch.tensor(self.exponents).repeat(lanes)[:lanes].view(graph.num_graphs, self.heads)
        bias = torch.randn(graph.num_nodes, self.heads, generator=draw, dtype=DOUBLE)
        bias = (bias.round() if self.whole else bias) * (10.0 ** exponent.double())[graph.batch]
        gamma = 0.9 * self.gamma if self.activation in ("silu", "mish") else self.gamma
        weight = getattr(weights, self.kind)(graph, logits, gamma)
        bias = bias.clamp(-3e38, 3e38).to(dtype)
        if self.activation is not None:
            return ActivatedMap(graph, weight, bias, self.activation)
        fixed = LinearMap(graph, weight, bias)
        return fixed.transpose(bias) if self.transposed else fixed

    def solver(self) -> Solver:
        methods = LINEAR if self.activation is None else [Picard, Anderson, Auto]
        return methods[self.method % len(methods)](**self.settings, throw=False)


TOLERANCES = st.one_of(
    st.just({}),
    st.sampled_from([100.0, 1e-3, 1e-6, 3e-8, 1e-12, 1e-16]).map(lambda tol: {"tol": tol}),
    st.sampled_from([10.0, 1e-2, 1e-6, 6e-8, 1e-12]).map(lambda rtol: {"rtol": rtol}),
    st.tuples(st.sampled_from([1e-3, 3e-8]), st.sampled_from([1e-3, 1e-7])).map(lambda two: {"tol": two[0], "rtol": two[1]}),
)
SETTINGS = st.builds(
    lambda tolerance, budget, certify, refine: {**tolerance, "max_iterations": budget, "certify": certify, "refine": refine},
    TOLERANCES,
    st.sampled_from([None, None, None, 1, 2, 7]),
    st.sampled_from(["plain", "plain", "tight"]),
    st.sampled_from([False, False, False, True]),
)
TRIALS = st.builds(
    Trial,
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=3).map(tuple),
    degree=st.floats(0, 5),
    heads=st.integers(1, 4),
    gamma=st.sampled_from([1e-3, 0.4, 0.9, 0.99]),
    kind=st.sampled_from(["softmax", "signed", "degree"]),
    activation=st.sampled_from([None, None, None, *PHI]),
    transposed=st.booleans(),
    float32=st.sampled_from([True, True, False]),
    exponents=st.lists(st.sampled_from([0, 0, 3, -1, 6, -8, 20, 38]), min_size=1, max_size=5).map(tuple),
    whole=st.booleans(),
    method=st.integers(0, 7),
    settings=SETTINGS,
    start=st.sampled_from([None, None, 1e-3, 1e6]),
    reference=st.sampled_from([False] * 7 + [True]),
    seed=st.integers(0, 2**31),
)


@settings(max_examples=500, suppress_health_check=list(HealthCheck))
@given(TRIALS)
def test_converged_if_and_only_if_the_bound_is_within_the_tolerance(trial: Trial) -> None:
    fixed, solver = trial.map(), trial.solver()
    x0 = None if trial.start is None else trial.start * torch.randn(fixed.bias.shape, dtype=fixed.dtype)
    if trial.reference:
        with using("reference"):
            solution = solve(fixed, solver, x0)
    else:
        solution = solve(fixed, solver, x0)
    if solution.value.numel():
        says_what_it_means(solution, fixed, *solver.tolerances(fixed.dtype))


@pytest.mark.parametrize("method", LINEAR)
@pytest.mark.parametrize("activation", [None, "relu"])
def test_an_answer_that_overflows_when_it_is_rounded_has_not_converged(method, activation) -> None:
    graph = Graph(torch.tensor([[0], [0]]), 1)
    weight, bias = torch.tensor([[0.4]]), torch.tensor([[3e38]])  # the fixed point is 5e38
    if activation and method not in (Picard, Anderson, Auto):
        return
    fixed = ActivatedMap(graph, weight, bias, activation) if activation else LinearMap(graph, weight, bias)
    for tolerance in ({}, {"rtol": 0.1}, {"rtol": 1e-6}):
        solution = solve(fixed, method(throw=False, **tolerance))
        assert not solution.converged.any()
        assert solution.status.item() in (Status.OVERFLOW, Status.PRECISION)
        with pytest.raises(ConvergenceError, match=r"range of numbers|as close as"):
            solve(fixed, method(**tolerance))


def two_graphs() -> LinearMap:
    """Biases of 1000 and of 0.1 whose answers float32 holds, the first one exactly."""
    graph = Graph(torch.tensor([[0, 1], [1, 0]]).repeat(1, 2) + torch.tensor([0, 0, 2, 2]), 4, batch=torch.tensor([0, 0, 1, 1]))
    return LinearMap(graph, torch.full((4, 1), 0.5), torch.tensor([[1000.0], [1000.0], [0.1], [0.1]]))


@pytest.mark.parametrize("method", LINEAR)
def test_a_bound_is_as_sharp_as_the_answer(method) -> None:
    """That of the first graph was 6e-5, with a status that said less than 3e-8."""
    fixed = two_graphs()
    solution = solve(fixed, method(tol=3e-8))
    assert solution.converged.all()
    assert (solution.error_bound <= 3e-8).all()
    says_what_it_means(solution, fixed, 3e-8, 0.0)


@pytest.mark.parametrize("method", [Picard, Anderson, BiCGStab, Direct, Auto])
def test_lanes_that_are_done_stay_as_they_were_certified(method) -> None:
    """At a tolerance near the rounding of float32 some lanes are done by luck, while others go on in float64."""
    for seed in range(60):
        graph = random_batch([3, 1, 12], 3, seed)
        for tol in (3e-7, 1e-7, 3e-8):
            fixed = random_map(graph, 4, 0.6, "signed", torch.float32, seed)
            says_what_it_means(solve(fixed, method(tol=tol, throw=False)), fixed, tol, 0.0)


@pytest.mark.parametrize("method", LINEAR)
def test_adjoints_say_what_they_mean_too(method) -> None:
    graph = random_batch([20, 0, 7], 4, 1)
    for dtype in (torch.float32, DOUBLE):
        weight = weights.softmax(graph, torch.randn(graph.num_edges, 2, dtype=dtype), 0.9).requires_grad_()
        fixed = LinearMap(graph, weight, torch.randn(27, 2, dtype=dtype))
        seen: list[Solution] = []
        solution = solve(fixed, method(rtol=1e-5), gradient=Implicit(on_adjoint=seen.append))
        cotangent = torch.randn(27, 2, dtype=dtype)
        solution.value.backward(cotangent)
        adjoint = fixed.detached().transpose(cotangent)
        says_what_it_means(seen[0], adjoint, torch.finfo(torch.float32).tiny, 1e-5)


@pytest.mark.parametrize("activation", [None, "tanh"])
@pytest.mark.parametrize("gradient", [OneStep(), Unrolled(), Unrolled(steps=3), Unrolled(steps=200)])
def test_the_other_gradients_certify_the_value_they_return(gradient, activation) -> None:
    linear = random_map(random_batch([12, 5], 3, 1), gamma=0.9, dtype=torch.float32)
    fixed = ActivatedMap(linear.graph, linear.weight, linear.bias, activation) if activation else linear
    for tol in (1e-5, 3e-6, 1e-7):
        solution = solve(fixed, Picard(tol=tol, throw=False), gradient=gradient)
        says_what_it_means(solution, fixed, tol, 0.0)
        if isinstance(gradient, Unrolled) and gradient.steps:
            assert solution.iterations == gradient.steps


def test_the_certificate_survives_compilation() -> None:
    fixed = random_map(random_batch([12, 5], 3, 1), gamma=0.9, dtype=torch.float32)
    compiled = torch.compile(
        lambda bias: solve(LinearMap(fixed.graph, fixed.weight, bias), Auto(tol=1e-6, throw=False)),
        fullgraph=True,
        backend="aot_eager",
    )
    says_what_it_means(compiled(fixed.bias), fixed, 1e-6, 0.0)


@pytest.mark.parametrize("activation", [None, "relu"])
def test_rounding_that_swings_to_and_fro_ends_a_burst(activation) -> None:
    """Half a unit in the last place over 1 - c, forwards and back: steps in float32 never get shorter, and Picard took billions."""
    graph = Graph(torch.tensor([[0, 1], [1, 0]]), 2)
    weight, bias = torch.full((2, 1), 0.999), torch.tensor([[1.0], [3.1]])
    fixed = ActivatedMap(graph, weight, bias, activation) if activation else LinearMap(graph, weight, bias)
    for tolerance in ({"rtol": 1e-12}, {"rtol": 1e-7}, {"tol": 1e-3}):
        solution = solve(fixed, Picard(throw=False, **tolerance))
        assert solution.iterations < 300_000
        says_what_it_means(solution, fixed, tolerance.get("tol", 0.0), tolerance.get("rtol", 0.0))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("method", [Picard, Anderson, Auto, Deflated])
def test_what_is_no_number_ends_soon(method, bad) -> None:
    """Picard went on for billions of steps."""
    graph = Graph(torch.tensor([[0, 1, 2], [1, 2, 0]]), 3)
    bias = torch.zeros(3, 2)
    fixed = LinearMap(graph, torch.full((3, 2), 0.9), bias)
    kinds = [fixed] if method is Deflated else [fixed, ActivatedMap(graph, fixed.weight, bias, "relu")]
    start = torch.tensor([[bad, 0.0], [0.0, 1.0], [1.0, 0.0]])
    for each in kinds:
        solution = solve(each, method(throw=False), x0=start)
        assert solution.status[0, 0] != Status.CONVERGED
        assert solution.iterations < 10_000
