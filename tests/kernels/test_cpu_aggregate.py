"""The kernels of multigrid: aggregates keep their promises, products agree with dense matrices, sweeps with their splitting."""

from __future__ import annotations

import pytest
import torch

from convergent import Graph
from convergent.kernels import cpu, reference
from convergent.kernels.cpu_rows import CHUNKS, cut
from convergent.kernels.reference import Rows
from problems import grid, random_batch, star

DOUBLE = torch.float64
GRAPHS = {
    "grid": Graph(grid(13, 9), 117),
    "star": Graph(star(40), 41),
    "leaves to hub": Graph(star(40)[:, :40], 41),
    "hub to leaves": Graph(star(40)[:, 40:], 41),
    "chain, one way": Graph(torch.stack([torch.arange(29), torch.arange(1, 30)]), 30),
    "loops only": Graph(torch.tensor([[0, 1, 1], [0, 1, 1]]), 3),
    "no edges": Graph(torch.zeros(2, 0, dtype=torch.long), 4),
    "empty": Graph(torch.zeros(2, 0, dtype=torch.long), 0),
    "batch": random_batch([30, 0, 1, 7, 60], 1.5, 0),
    "dense batch": random_batch([20, 50], 8, 1),
}
every_graph = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())


def sorted_rows(graph: Graph) -> Rows:
    return Rows(graph.rows.pointer, graph.rows.column, None)


def dense(rows: Rows, values: torch.Tensor, columns: int) -> torch.Tensor:
    matrix = torch.zeros(len(rows.pointer) - 1, columns, values.shape[1], dtype=DOUBLE)
    index = (reference.row_of_position(rows), rows.column.long())
    return matrix.index_put(index, values.double(), accumulate=True)


@every_graph
def test_aggregates_agree_with_the_reference(graph):
    rows = sorted_rows(graph)
    assert cpu.aggregate(rows).tolist() == reference.aggregate(rows).tolist()


@every_graph
def test_aggregates_keep_their_promises(graph):
    aggregate = cpu.aggregate(sorted_rows(graph))
    between = graph.row != graph.column
    ends = torch.cat([graph.row[between], graph.column[between]]).unique()
    held = (aggregate >= 0).nonzero().squeeze(1)
    assert held.tolist() == ends.tolist()  # every node with a neighbour, and no other
    sizes = aggregate[held].bincount()
    assert (sizes >= 2).all()
    numbers = aggregate[held].tolist()
    first = [numbers.index(number) for number in range(len(sizes))]
    assert first == sorted(first)
    for number in range(len(sizes)):
        assert len(graph.batch[aggregate == number].unique()) == 1


def test_aggregates_of_a_grid_are_neighbourhoods():
    aggregate = cpu.aggregate(sorted_rows(Graph(grid(60, 60), 3600)))
    assert 450 < int(aggregate.max()) + 1 < 900


@pytest.mark.parametrize("heads", [1, 3, 4])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("name", ["grid", "batch", "leaves to hub", "dense batch"])
def test_products_agree_with_dense_ones(name, grouped, heads):
    graph = GRAPHS[name]
    rows, nodes, columns = sorted_rows(graph), graph.num_nodes, 11
    torch.manual_seed(0)
    inner = Graph(torch.stack([torch.randint(nodes, (150,)), torch.randint(columns, (150,))]), max(nodes, columns)).rows
    inner = Rows(inner.pointer[: nodes + 1], inner.column, None)
    weight, values = torch.randn(graph.num_edges, heads), torch.randn(150, heads, dtype=DOUBLE)
    keep, spread = torch.randn(2, nodes, heads, dtype=DOUBLE)
    groups, add = None, torch.eye(nodes, dtype=DOUBLE)
    if grouped:
        members = torch.randperm(nodes)[: nodes // 2].int()
        cuts = torch.tensor([0, 1, nodes // 3, nodes // 2], dtype=torch.int32)
        groups = Rows(cuts, members, None)
        add = torch.zeros(3, nodes, dtype=DOUBLE)
        add[reference.row_of_position(groups), members.long()] = 1
    right = dense(inner, values, columns)
    moved = torch.einsum("ijh,jkh->ikh", dense(rows, weight, nodes), right)
    wanted = torch.einsum("gi,ikh->gkh", add, keep[:, None] * right + spread[:, None] * moved)
    for kernels in (cpu, reference):
        out = kernels.reach(rows, inner, columns, groups)
        flat = reference.row_of_position(out) * columns + out.column
        assert len(flat.unique()) == len(flat)
        found = kernels.combine(rows, weight, keep, spread, inner, values, out, columns, groups)
        torch.testing.assert_close(dense(out, found, columns), wanted)


def sweep_by_hand(matrix, inverse, bias, x, block):
    """Forward, then backward Gauss-Seidel inside each block, Jacobi between blocks, by triangular solves."""
    same = block[:, None] == block[None, :]
    for lower in (True, False):
        part = torch.tril(matrix * same, -1) if lower else torch.triu(matrix * same, 1)
        left = torch.diag(1 / inverse) - part
        x = torch.linalg.solve(left, bias + (matrix - part) @ x)
    return x


@pytest.mark.parametrize("heads", [1, 4, 5])
@pytest.mark.parametrize("blocks", [False, True])
def test_relaxation_is_symmetric_gauss_seidel(heads, blocks, monkeypatch):
    if blocks:
        monkeypatch.setattr(cpu, "SERIAL", 0)
    graph = Graph(grid(20, 15), 300)
    rows = sorted_rows(graph)
    torch.manual_seed(0)
    weight = torch.rand(graph.num_edges, heads, dtype=DOUBLE) / 4
    inverse, bias, x = 0.5 + torch.rand(3, 300, heads, dtype=DOUBLE)
    bounds = [cut(rows.pointer.numpy(), 0, 300, chunk, CHUNKS) for chunk in range(1, CHUNKS)] if blocks else []
    block = torch.bucketize(torch.arange(300), torch.tensor(bounds, dtype=torch.long), right=True)
    assert len(block.unique()) == (CHUNKS if blocks else 1)
    matrix = dense(rows, weight, 300)
    wanted = [sweep_by_hand(matrix[..., h], inverse[:, h], bias[:, h], x[:, h], block) for h in range(heads)]
    torch.testing.assert_close(cpu.relax(rows, weight, inverse, bias, x.clone(), True), torch.stack(wanted, 1))
    one = torch.ones_like(inverse)
    left, right = (cpu.relax(rows, weight, scale, bias, x.clone(), True) for scale in (one, None))
    torch.testing.assert_close(left, right)


@pytest.mark.parametrize("kernels", [cpu, reference], ids=["cpu", "reference"])
def test_relaxation_leaves_the_solution_alone(kernels):
    graph = Graph(grid(8, 8), 64)
    weight = torch.full((graph.num_edges, 2), 0.24, dtype=DOUBLE)
    inverse = torch.full((64, 2), 0.9, dtype=DOUBLE)
    x = torch.randn(64, 2, dtype=DOUBLE)
    bias = x / inverse - kernels.propagate(sorted_rows(graph), weight, x)
    torch.testing.assert_close(kernels.relax(sorted_rows(graph), weight, inverse, bias, x.clone(), True), x)


@pytest.mark.parametrize("omega", [0.0, 0.66])
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_restriction_agrees_with_the_reference(omega, dtype):
    graph = GRAPHS["dense batch"]
    rows = sorted_rows(graph)
    groups = Rows(torch.tensor([0, 3, 4, 40], dtype=torch.int32), torch.randperm(70)[:40].int(), None)
    weight, inverse, r = (torch.randn(n, 3, dtype=dtype) for n in (graph.num_edges, 70, 70))
    for scale in (inverse, None):
        args = (rows, weight, scale, r, groups, omega)
        torch.testing.assert_close(cpu.restrict(*args), reference.restrict(*args))


@pytest.mark.parametrize("heads", [1, 3, 4, 17])
def test_blend_agrees_with_the_reference(heads):
    segments = torch.tensor([0, 5, 5, 9000, 9001])
    a, b, c = torch.randn(3, 9001, heads)
    first, second = torch.randn(2, 4, heads, dtype=DOUBLE)
    wanted = reference.blend(a, first, b, second, c, segments, torch.empty_like(a))
    torch.testing.assert_close(cpu.blend(a, first, b, second, c, segments, a), wanted)
    assert not torch.equal(wanted, b)
