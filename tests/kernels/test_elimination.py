"""Elimination against exact rational arithmetic, scipy and its own reference, over structures that are nasty on purpose."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csc_array, identity
from scipy.sparse.linalg import splu

from convergent.errors import InputError
from convergent.kernels import reference, using
from convergent.kernels.elimination import Factors, Symbolic, analyse, factor
from convergent.kernels.reference import Rows
from operators import Problem, make

HEADS = (1, 2, 3, 4, 5, 8, 16, 17)
SIZES = (7, 0, 23, 1, 40)
UNIT = 2**50  # weights are whole multiples of 1 / UNIT, so that rows sum to what they are meant to


def factorised(p: Problem, weight: torch.Tensor) -> Factors:
    return factor(analyse(p.rows, p.segments), weight)[0]


def residual(p: Problem, weight: torch.Tensor, x: torch.Tensor, b: torch.Tensor, transposed: bool = False) -> float:
    """Of (I - W) x = b, relative to the size of x."""
    values, row, column = reference.ordered(p.rows, weight).double(), p.row, p.rows.column.long()
    if transposed:
        row, column = column, row
    left = x - torch.zeros_like(x).index_add_(0, row, values * x[column])
    return float((left - b).abs().max() / x.abs().max()) if x.numel() else 0.0


# --- against exact arithmetic ---


def exact_solution(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction] | None:
    """Gauss and Jordan; None where the matrix is singular."""
    size = len(matrix)
    system = [[*row, b] for row, b in zip(matrix, right, strict=True)]
    for k in range(size):
        pivot = next((i for i in range(k, size) if system[i][k]), None)
        if pivot is None:
            return None
        system[k], system[pivot] = system[pivot], system[k]
        system[k] = [value / system[k][k] for value in system[k]]
        for i in range(size):
            if i != k and system[i][k]:
                system[i] = [a - system[i][k] * b for a, b in zip(system[i], system[k], strict=True)]
    return [row[-1] for row in system]


@st.composite
def chains(draw: st.DrawFn, signs: bool = False) -> tuple[list[int], list[tuple[int, int]], list[list[int]]]:
    """Sizes, edges and the weights of every head in units; rows sum to one, or to one less what they lose."""
    sizes = draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
    heads = draw(st.sampled_from((1, 2, 3, 5)))
    edges: list[tuple[int, int]] = []
    weights: list[list[int]] = []
    start = 0
    for size in sizes:
        for row in range(start, start + size):
            reads = draw(st.lists(st.integers(start, start + size - 1), max_size=4))  # loops and parallel edges, too
            edges += [(row, column) for column in reads]
            columns = []
            for _ in range(heads):
                # eight decades between weights, and losses from nothing to a thousandth
                shares = [draw(st.sampled_from((1, 3, 10**4, 10**8))) for _ in reads]
                loss = draw(st.sampled_from((0, 0, 1, 2**20, 2**40)))
                parts = [share * (UNIT - loss) // sum(shares) for share in shares]
                if parts:
                    parts[0] += UNIT - loss - sum(parts)
                columns.append([part * draw(st.sampled_from((-1, 1))) if signs else part for part in parts])
            weights += [list(parts) for parts in zip(*columns, strict=True)]
        start += size
    return sizes, edges, weights


def assembled(sizes: list[int], edges: list[tuple[int, int]], weights: list[list[int]]) -> tuple[Rows, torch.Tensor, torch.Tensor]:
    """Edges in reverse, so that the rows have an order."""
    nodes, heads = sum(sizes), len(weights[0]) if weights else 1
    row, column = (torch.tensor([edge[end] for edge in reversed(edges)], dtype=torch.long) for end in (0, 1))
    pointer, order = reference.group(row, nodes)
    weight = torch.tensor(list(reversed(weights)), dtype=torch.float64).reshape(len(edges), heads) / UNIT
    segments = torch.tensor([0, *sizes]).cumsum(0)
    return Rows(pointer.int(), column[order].int(), order.int()), segments.int(), weight


def exact_matrix(first: int, last: int, edges: list[tuple[int, int]], weights: list[list[int]], head: int) -> list[list[Fraction]]:
    matrix = [[Fraction(int(i == j)) for j in range(last - first)] for i in range(last - first)]
    for (row, column), parts in zip(edges, weights, strict=True):
        if first <= row < last:
            matrix[row - first][column - first] -= Fraction(parts[head], UNIT)
    return matrix


def stranded(matrix: list[list[Fraction]]) -> list[int]:
    """Nodes that reach no row that loses."""
    good = {i for i, row in enumerate(matrix) if sum(row) > 0}
    for _ in matrix:
        good |= {i for i, row in enumerate(matrix) if any(row[j] for j in good if j != i)}
    return [i for i in range(len(matrix)) if i not in good]


@given(chains())
def test_every_digit_is_right_however_close_to_one_rows_are(drawn):
    sizes, edges, weights = drawn
    rows, segments, weight = assembled(*drawn)
    nodes, heads = sum(sizes), weight.shape[1]
    right = torch.linspace(0.1, 2.0, 2 * nodes * heads, dtype=torch.float64).reshape(2, nodes, heads)
    found = factor(analyse(rows, segments), weight)[0]
    solutions = [(found.solve(right), False), (found.solve_transposed(right), True)]
    for graph in range(len(sizes)):
        first, last = int(segments[graph]), int(segments[graph + 1])
        for head in range(heads):
            matrix = exact_matrix(first, last, edges, weights, head)
            closed = stranded(matrix)
            assert bool(found.ok[graph, head]) == (not closed)
            assert found.closed(graph, head).tolist() == [first + node for node in closed]
            if closed:
                continue
            for x, transposed in solutions:
                whole = [list(column) for column in zip(*matrix, strict=True)] if transposed else matrix
                for side in range(2):
                    b = [Fraction(value) for value in right[side, first:last, head].tolist()]
                    truth = exact_solution(whole, b)
                    assert truth is not None
                    for mine, exact in zip(x[side, first:last, head].tolist(), truth, strict=True):
                        assert abs(Fraction(mine) - exact) <= Fraction(1e-13) * exact


@given(chains(signs=True))
def test_rows_of_either_sign(drawn):
    sizes, edges, weights = drawn
    rows, segments, weight = assembled(*drawn)
    weight = weight * 0.875
    nodes, heads = sum(sizes), weight.shape[1]
    right = torch.linspace(-1.0, 2.0, nodes * heads, dtype=torch.float64).reshape(nodes, heads)
    found = factor(analyse(rows, segments), weight)[0]
    x, y = found.solve(right), found.solve_transposed(right)
    assert bool(found.ok.all())
    for graph in range(len(sizes)):
        first, last = int(segments[graph]), int(segments[graph + 1])
        for head in range(heads):
            matrix = exact_matrix(first, last, edges, weights, head)
            matrix = [[int(i == j) + (a - int(i == j)) * Fraction(7, 8) for j, a in enumerate(row)] for i, row in enumerate(matrix)]
            b = [Fraction(value) for value in right[first:last, head].tolist()]
            for mine, whole in ((x, matrix), (y, [list(column) for column in zip(*matrix, strict=True)])):
                truth = exact_solution(whole, b)
                assert truth is not None
                size = max((abs(value) for value in truth), default=Fraction(0))
                for value, exact in zip(mine[first:last, head].tolist(), truth, strict=True):
                    assert abs(Fraction(value) - exact) <= Fraction(1e-13) * size


def path(size: int, leak: float, dtype: torch.dtype = torch.float64) -> tuple[Rows, torch.Tensor, torch.Tensor]:
    """A walk to the left and to the right that is absorbed beyond the last node, and dies with probability ``leak``."""
    row = torch.arange(size).repeat_interleave(2)
    column = row + torch.tensor([-1, 1]).repeat(size)
    kept = (column >= 0) & (column < size)
    weight = torch.full((2 * size, 1), (1 - leak) / 2, dtype=dtype)[kept]
    weight[0] *= 2  # the first node is reflected
    row, column = row[kept], column[kept]
    pointer, _ = reference.group(row, size)
    return Rows(pointer, column, None), torch.tensor([0, size]), weight


def test_a_long_walk_whose_rows_sum_to_one():
    size = 2000
    rows, segments, weight = path(size, 0.0)
    found = factor(analyse(rows, segments), weight)[0]
    steps = found.solve(torch.ones(size, 1, dtype=torch.float64))[:, 0]  # from i: n^2 - i^2
    place = torch.arange(size, dtype=torch.float64)
    torch.testing.assert_close(steps, size**2 - place**2, rtol=1e-13, atol=0.0)


def test_float32_weights_are_taken_as_they_are():
    rows, segments, weight = path(500, 2.0**-20, torch.float32)
    symbolic, one = analyse(rows, segments), torch.ones(500, 1, dtype=torch.float64)
    narrow, wide = factor(symbolic, weight)[0], factor(symbolic, weight.double())[0]
    assert torch.equal(narrow.solve(one), wide.solve(one))
    assert float((weight.double()[:2].sum(0) - 1).abs()) > 0


def test_slacks_are_exact():
    """1 - (1 - 2^-53) - 2^-54 - ... in whatever order; the sum in double precision would be 2^-53 or nothing."""
    parts = [2.0**-70, 1 - 2.0**-53, 2.0**-54, 2.0**-55, 2.0**-90]
    rows = Rows(torch.tensor([0, 5]), torch.zeros(5, dtype=torch.long), None)
    weight = torch.tensor(parts, dtype=torch.float64).unsqueeze(1)
    exact = 1 / (1 - sum(map(Fraction, parts)))
    x = factor(analyse(rows, torch.tensor([0, 1])), weight)[0].solve(torch.ones(1, 1))
    # a self loop: the pivot is the slack alone
    assert abs(Fraction(float(x[0, 0])) - exact) <= Fraction(1e-15) * exact


# --- against the reference and against scipy ---


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("permuted", [False, True])
@pytest.mark.parametrize("signs", [False, True])
def test_same_as_the_reference(heads, permuted, signs):
    p = make(SIZES, heads, permuted=permuted, factor=0.99)
    weight = p.weight if signs else p.weight.abs()
    right = torch.stack([p.bias, p.x, torch.ones_like(p.x)])
    symbolic = analyse(p.rows, p.segments)
    mine, x = factor(symbolic, weight, right)
    with using("reference"):
        theirs, truth = factor(symbolic, weight, right)
    assert x is not None
    assert truth is not None
    assert torch.equal(mine.ok, theirs.ok)
    assert bool(mine.ok.all())
    for found, wanted in ((x, truth), (mine.solve(right), truth), (mine.solve_transposed(right), theirs.solve_transposed(right))):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)
    assert residual(p, weight, mine.solve(p.bias), p.bias) < 1e-13
    assert residual(p, weight, mine.solve_transposed(p.bias), p.bias, transposed=True) < 1e-13


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_weights(dtype):
    p = make(SIZES, 3, factor=0.9)
    weight = p.weight.to(dtype)
    found = factorised(p, weight)
    assert residual(p, weight.double(), found.solve(p.bias), p.bias) < 1e-14


@pytest.mark.parametrize(("size", "degree", "heads"), [(600, 4, 4), (3000, 2, 1), (400, 30, 3)])
def test_same_as_superlu(size, degree, heads):
    p = make((size,), heads, degree=degree, factor=0.999)
    found = factorised(p, p.weight)
    x, y = found.solve(p.bias), found.solve_transposed(p.bias)
    row, column = p.row.numpy(), p.rows.column.numpy()
    for head in range(heads):
        operator = csc_array((p.weight[:, head].numpy(), (row, column)), shape=(size, size))
        theirs = splu((identity(size, format="csc") - operator).tocsc())
        for mine, mode in ((x, "N"), (y, "T")):
            np.testing.assert_allclose(mine[:, head], theirs.solve(p.bias[:, head].numpy(), mode), rtol=1e-8, atol=1e-9)


def test_rows_above_one_whose_spectral_radius_is_below():
    """An H-matrix: rows of two where every path ends soon, scaled to its rows' sums by some v."""
    row, column = torch.tensor([0, 1, 1, 2]), torch.tensor([1, 2, 2, 3])
    pointer, _ = reference.group(row, 4)
    rows, segments = Rows(pointer, column, None), torch.tensor([0, 4])
    weight = torch.tensor([[3.0, -3.0], [2.0, 2.0], [1.0, -1.0], [4.0, 4.0]], dtype=torch.float64)
    found = factor(analyse(rows, segments), weight)[0]
    assert bool(found.ok.all())
    x = found.solve(torch.ones(4, 2, dtype=torch.float64))
    assert x.T.tolist() == [[1 + 3 * (1 + 3 * 5), 1 + 3 * 5, 5, 1], [1 - 3 * (1 + 5), 1 + 5, 5, 1]]


@pytest.mark.parametrize("excess", [1e-3, 2.0])
def test_a_matrix_that_is_no_h_matrix_is_flagged(excess):
    row, column = torch.tensor([0, 1, 2]), torch.tensor([1, 0, 2])
    pointer, _ = reference.group(row, 3)
    weight = torch.tensor([[1 + excess, 0.5], [1.0, 0.5], [0.5, 0.5]], dtype=torch.float64)
    found = factor(analyse(Rows(pointer, column, None), torch.tensor([0, 2, 3])), weight)[0]
    assert found.ok.tolist() == [[False, True], [True, True]]
    assert found.closed(0, 0).tolist() == [0, 1]
    assert found.closed(0, 1).tolist() == []
    assert found.solve(torch.ones(3, 2))[2].tolist() == [2.0, 2.0]  # the other graph does not suffer
    assert found.solve(torch.ones(3, 2))[:2, 1].tolist() == [2.0, 2.0]  # nor the other head


def test_nan_is_flagged():
    p = make((5, 6), 2)
    weight = p.weight.abs()
    weight[0, 1] = torch.nan
    found = factorised(p, weight)
    assert found.ok.tolist() == [[True, False], [True, True]]


# --- structure ---


def test_no_edges_no_nodes_no_heads():
    rows, segments = Rows(torch.zeros(4, dtype=torch.int32), torch.zeros(0, dtype=torch.int32), None), torch.tensor([0, 0, 3])
    found, x = factor(analyse(rows, segments), torch.zeros(0, 2), torch.ones(1, 3, 2))
    assert x is not None
    assert torch.equal(x, torch.ones(1, 3, 2, dtype=torch.float64))
    assert found.ok.tolist() == [[True, True], [True, True]]
    empty = Rows(torch.zeros(1, dtype=torch.int32), torch.zeros(0, dtype=torch.int32), None)
    assert factor(analyse(empty, torch.tensor([0])), torch.zeros(0, 2))[0].solve(torch.zeros(0, 2)).shape == (0, 2)
    p = make(SIZES, 0)
    assert factorised(p, p.weight).solve(p.bias).shape == p.bias.shape


def test_estimates_need_no_numbers():
    p = make((300, 20), 1, degree=3)
    symbolic = analyse(p.rows, p.segments)
    assert symbolic.complete
    assert symbolic.fill[0] > symbolic.fill[1] > 0
    assert symbolic.flops[0] > symbolic.flops[1] > 0
    assert "fill=" in repr(symbolic)


def test_a_graph_that_fills_up_is_given_up_alone():
    p = make((300, 20, 0, 25), 1, degree=6)
    whole = analyse(p.rows, p.segments)
    symbolic = analyse(p.rows, p.segments, limit=0.2 * whole.flops[0])
    assert np.isinf(symbolic.flops).tolist() == [True, False, False, False]
    assert symbolic.flops[1:].tolist() == whole.flops[1:].tolist()
    assert not symbolic.complete
    with pytest.raises(InputError, match="symbolic: expected graphs that were not given up, but got 1 that were"):
        factor(symbolic, p.weight)


@pytest.mark.parametrize("shape", [(71, 2), (3,), (1, 71, 2)])
def test_wrong_shapes(shape):
    p = make(SIZES, 3)
    found = factorised(p, p.weight)
    with pytest.raises(InputError, match=r"right: expected a tensor of shape \[71, 3\] or \[R, 71, 3\]"):
        found.solve(torch.zeros(shape))


def test_wrong_weights():
    p = make(SIZES, 3)
    symbolic: Symbolic = analyse(p.rows, p.segments)
    with pytest.raises(InputError, match=r"weight: expected a tensor of shape \[\d+, H\]"):
        factor(symbolic, p.weight[:-1])


def test_threads_change_nothing():
    p = make((900,) * 12, 8, degree=2)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            factors, x = factor(analyse(p.rows, p.segments), p.weight, p.bias.unsqueeze(0))
            found.append((x, factors.solve_transposed(p.bias)))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
