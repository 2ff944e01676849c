"""Weights whose rows contract by what is wanted, up to a rounding below one, and biases of any scale."""

from __future__ import annotations

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from campaign.blocks import Structure
from campaign.shapes import pick

SIGNS = ("positive", "mixed", "negative", "alternating")
CONTRACTIONS = ("easy", "easy", "spread", "one slow", "near one", "zero", "tiny")
ROWS = ("full", "ragged", "single", "leak")
CLOSEST = 12  # at most 1 - 1e-12
BELOW_ONE = 1 - 2.0**-44  # the library adds its own rounding to the sums

# exponents of ten of a bias in each dtype, and of those that are rarer: at the ends of its range
SCALES = {torch.float64: (-30, 38), torch.float32: (-30, 37), torch.bfloat16: (-30, 37), torch.float16: (-3, 3)}
ENDS = {torch.float64: (-200, 140), torch.float32: (-44, 38.5), torch.bfloat16: (-38, 38.4), torch.float16: (-6, 4.7)}


def random_contraction(draw: Generator, graphs: int, heads: int) -> tuple[Tensor, str]:
    """The largest row sum wanted of every graph and head, [G, H]."""
    kind = pick(draw, CONTRACTIONS)
    shape = (graphs, heads)
    wanted = draw.uniform(0, 0.95, shape)
    slow = 1 - 10.0 ** -draw.uniform(1.5, CLOSEST)
    if kind == "spread":
        wanted = 1 - 10.0 ** -draw.uniform(0, 3, shape)
    elif kind == "one slow" and graphs:
        wanted[draw.integers(graphs)] = slow
    elif kind == "near one":
        wanted = 1 - 10.0 ** -draw.uniform(1, CLOSEST, shape)
    elif kind == "zero":
        wanted[:] = 0
    elif kind == "tiny":
        wanted = 10.0 ** -draw.uniform(1, 40, shape)
    return torch.from_numpy(wanted), kind


def random_weight(
    draw: Generator, structure: Structure, wanted: Tensor, lipschitz: float, dtype: torch.dtype
) -> tuple[Tensor, dict[str, str]]:
    """One number per edge and head, [E, H]; rows stay below one after they were rounded."""
    edges, heads = len(structure.row), wanted.shape[1]
    signs, rows = pick(draw, SIGNS), pick(draw, ROWS)
    spread = pick(draw, (0.0, 0.5, 2.0, 5.0))
    size = torch.from_numpy(np.exp(spread * draw.standard_normal((edges, heads))))
    size = size / structure.sum_rows(size)[structure.row]
    of_row = _of_rows(draw, structure, wanted, rows) / lipschitz
    sign = random_signs(draw, signs, edges, heads)
    weight = (sign * size * of_row[structure.row]).to(dtype)
    if draw.random() < 0.1:
        weight = weight * torch.from_numpy(draw.random((edges, heads)) < 0.7)
    weight = _closer(structure, weight, of_row)
    return _contracting(structure, weight, lipschitz), {"signs": signs, "rows": rows, "spread": str(spread)}


def _of_rows(draw: Generator, structure: Structure, wanted: Tensor, kind: str) -> Tensor:
    full = wanted[structure.graph_of]
    if kind == "full":
        return full
    share = torch.from_numpy(draw.random(tuple(full.shape)))
    if kind == "ragged":
        return full * share
    chosen = torch.from_numpy(draw.random((len(full), 1)) < 0.1)
    return torch.where(chosen, full, full * share * 0.5) if kind == "single" else torch.where(chosen, full * share * 0.5, full)


def random_signs(draw: Generator, kind: str, edges: int, heads: int) -> Tensor:
    if kind == "mixed":
        return torch.from_numpy(draw.choice([-1.0, 1.0], (edges, heads)))
    if kind == "alternating":
        return torch.ones(edges, heads).double() * (1 - 2 * (torch.arange(edges) % 2)).unsqueeze(1)
    return torch.full((edges, heads), -1.0 if kind == "negative" else 1.0).double()


def _closer(structure: Structure, weight: Tensor, of_row: Tensor) -> Tensor:
    """The smallest entry of a row takes up what rounding left: float32 too comes within 1e-12 of one where an entry is small."""
    size = weight.abs().double()
    least = torch.full_like(of_row, torch.inf)
    least = least.scatter_reduce(0, structure.row.unsqueeze(1).expand_as(size), size, "amin")
    smallest = size == least[structure.row]
    several = structure.sum_rows(smallest.double())[structure.row]
    gap = (of_row - structure.sum_rows(size))[structure.row] / several
    near = (of_row > 0.99)[structure.row] & smallest
    filled = (torch.sign(weight) * (size + gap).clamp(min=0)).to(weight.dtype)
    return torch.where(near, filled, weight)


def _contracting(structure: Structure, weight: Tensor, lipschitz: float) -> Tensor:
    for shrink in (0, 1, 2, 4, 8, 1000):
        factor = 1 - shrink * torch.finfo(weight.dtype).eps
        over = (lipschitz * structure.sum_rows(weight.abs().double()) > BELOW_ONE)[structure.row]
        if not bool(over.any()):
            break
        weight = torch.where(over, (weight.double() * max(factor, 0.5)).to(weight.dtype), weight)
    return weight


def random_bias(draw: Generator, nodes: int, structure: Structure, heads: int, dtype: torch.dtype) -> tuple[Tensor, str]:
    """[N, H] in a dtype, finite."""
    low, high = ENDS[dtype] if draw.random() < 0.08 else SCALES[dtype]
    shape = (nodes, heads)
    per = pick(draw, ("batch", "graph", "node"), (3, 2, 1))
    around = pick(draw, (0.0, draw.uniform(low, high)), (1, 1)) if per == "batch" else None
    exponent = np.full(shape, around) if around is not None else _exponents(draw, per, low, high, structure, heads)
    kind = pick(draw, ("normal", "positive", "sparse", "constant", "zero"), (4, 3, 2, 1, 0.3))
    values = draw.standard_normal(shape)
    values = {"positive": np.abs(values), "constant": np.ones(shape), "zero": np.zeros(shape)}.get(kind, values)
    values = values * (draw.random(shape) < 0.1) if kind == "sparse" else values
    largest = torch.finfo(dtype).max
    bias = torch.from_numpy(np.clip(values * 10.0**exponent, -largest, largest)).to(dtype)
    return bias.clamp(-largest, largest), f"{kind}, scale per {per}"


def _exponents(draw: Generator, per: str, low: float, high: float, structure: Structure, heads: int):  # type: ignore[no-untyped-def]
    if per == "graph":
        return draw.uniform(low, high, (len(structure.sizes), heads))[structure.graph_of.numpy()]
    center = draw.uniform(low, high)
    around = draw.uniform(center - 6, center + 6, (structure.num_nodes, heads))
    return np.clip(around, low, high)
