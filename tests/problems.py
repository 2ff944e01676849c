"""Problems with exact answers, and strategies that make them nasty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import torch
from hypothesis import strategies as st
from scipy.sparse import csc_array, identity
from scipy.sparse.linalg import splu
from torch import Tensor

from convergent import ActivatedMap, Graph, LinearMap, Solution, weights

DOUBLE = torch.float64


def grid(width: int, height: int) -> Tensor:
    """Edges of a 2-D grid, both ways."""
    node = torch.arange(width * height).view(height, width)
    pairs = torch.cat(
        [
            torch.stack([node[:, 1:].flatten(), node[:, :-1].flatten()]),
            torch.stack([node[1:].flatten(), node[:-1].flatten()]),
        ],
        1,
    )
    return torch.cat([pairs, pairs.flip(0)], 1)


def star(leaves: int) -> Tensor:
    """Every leaf depends on node 0, and node 0 on every leaf: rows sum to one while the spectral norm is sqrt(leaves)."""
    leaf = torch.arange(1, leaves + 1)
    hub = torch.zeros_like(leaf)
    return torch.cat([torch.stack([leaf, hub]), torch.stack([hub, leaf])], 1)


def random_batch(sizes: list[int], degree: float, seed: int) -> Graph:
    """Random graphs side by side: parallel edges, self loops and nodes without edges come by chance; edges are in no order."""
    draw = torch.Generator().manual_seed(seed)
    start, edges = 0, []
    for size in sizes:
        count = round(degree * size)
        if size:
            edges.append(start + torch.randint(0, size, (2, count), generator=draw))
        start += size
    index = torch.cat(edges, 1) if edges else torch.zeros(2, 0, dtype=torch.long)
    index = index[:, torch.randperm(index.shape[1], generator=draw)]
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes, dtype=torch.long))
    return Graph(index, start, batch=batch)


def random_map(
    graph: Graph, heads: int = 2, gamma: float = 0.9, kind: str = "softmax", dtype: torch.dtype = DOUBLE, seed: int = 0
) -> LinearMap:
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(graph.num_edges, heads, generator=draw, dtype=dtype)
    bias = 2 * torch.rand(graph.num_nodes, heads, generator=draw, dtype=dtype) - 1
    return LinearMap(graph, getattr(weights, kind)(graph, logits, gamma), bias)


def exact(fixed: LinearMap) -> numpy.ndarray:
    """The fixed point by sparse LU, refined once in extended precision: [N, H]."""
    graph, size = fixed.graph, fixed.graph.num_nodes
    row, column = graph.row.numpy(), graph.column.numpy()
    weight, bias = fixed.weight.detach().double().numpy(), fixed.bias.detach().double().numpy()
    answer = numpy.zeros(bias.shape, dtype=numpy.longdouble)
    for head in range(fixed.heads) if size else ():
        operator = csc_array((weight[:, head], (row, column)), shape=(size, size))
        factors = splu((identity(size, format="csc") - operator).tocsc())
        x = factors.solve(bias[:, head]).astype(numpy.longdouble)
        image = bias[:, head].astype(numpy.longdouble)
        numpy.add.at(image, row, weight[:, head].astype(numpy.longdouble) * x[column])
        answer[:, head] = x + factors.solve((image - x).astype(numpy.float64))
    return answer


PHI = {  # in extended precision
    "relu": lambda z: numpy.maximum(z, 0),
    "leaky_relu": lambda z: numpy.where(z > 0, z, z * numpy.longdouble(0.01)),
    "tanh": numpy.tanh,
    "elu": lambda z: numpy.where(z > 0, z, numpy.expm1(numpy.minimum(z, 0))),
    "softsign": lambda z: z / (1 + abs(z)),
    "silu": lambda z: z / (1 + numpy.exp(-z)),
    "mish": lambda z: z * numpy.tanh(numpy.log1p(numpy.exp(numpy.minimum(z, 50)))),
}


def exact_activated(fixed: ActivatedMap) -> numpy.ndarray:
    """The fixed point by plain steps in extended precision, until no entry moves."""
    row, column = fixed.graph.row.numpy(), fixed.graph.column.numpy()
    weight, bias = (part.detach().double().numpy().astype(numpy.longdouble) for part in fixed.parameters())
    x = numpy.zeros_like(bias)
    for _ in range(100_000):
        image = bias.copy()
        numpy.add.at(image, row, weight * x[column])
        with numpy.errstate(over="ignore"):
            before, x = x, PHI[fixed.activation](image)
        if (abs(x - before) <= 2e-19 * abs(x)).all():
            break
    return x


def true_error(solution: Solution, fixed: LinearMap | ActivatedMap) -> Tensor:
    """The norm of value - x* of every graph and head, [G, H]."""
    truth = exact(fixed) if isinstance(fixed, LinearMap) else exact_activated(fixed)
    error = solution.value.detach().double().numpy().astype(numpy.longdouble) - truth
    return fixed.size(torch.from_numpy(numpy.abs(error).astype(numpy.float64)))


@dataclass(frozen=True)
class Case:
    """A random problem as hypothesis draws it."""

    sizes: tuple[int, ...]
    degree: float
    heads: int
    gamma: float
    kind: str
    transposed: bool
    seed: int

    def map(self, dtype: torch.dtype = DOUBLE) -> LinearMap:
        graph = random_batch(list(self.sizes), self.degree, self.seed)
        fixed = random_map(graph, self.heads, self.gamma, self.kind, dtype, self.seed)
        return fixed.transpose(fixed.bias) if self.transposed else fixed

    @property
    def rtol(self) -> float:
        """The sum over an adjoint can be 10^5, where the rounding of float64 times 1 / (1 - 0.9999) is 1e-6 itself."""
        return 1e-10 if self.transposed else 0.0


def cases(largest: int = 200, hardest: float = 0.9999) -> st.SearchStrategy[Case]:
    gammas = st.one_of(st.floats(0.01, 0.95), st.sampled_from([0.5, 0.9, 0.99, 0.999, hardest]))
    sizes = st.lists(st.one_of(st.integers(0, 12), st.integers(0, largest)), min_size=1, max_size=6)
    return st.builds(
        Case,
        sizes.map(tuple),
        st.floats(0, 12),
        st.integers(1, 5),
        gammas,
        st.sampled_from(["softmax", "signed", "degree"]),
        st.booleans(),
        st.integers(0, 2**31),
    )
