"""Weights whose rows sum to exactly one in places, while something is lost from every node: multiples of a power of two."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from campaign.blocks import Structure
from campaign.numbers import random_signs
from campaign.shapes import pick

DIGITS = {torch.float64: 53, torch.float32: 24, torch.bfloat16: 8, torch.float16: 11}  # of numbers of each dtype
FINEST = 20  # digits of a weight: with more of them graphs of 40 nodes are beyond any reference


def weight_with_exact_rows(
    draw: Generator, structure: Structure, heads: int, dtype: torch.dtype
) -> tuple[Tensor, dict[str, str]] | None:
    """One number per edge and head, [E, H]; None: a node has more edges than the dtype has parts of one."""
    degree = torch.bincount(structure.row, minlength=structure.num_nodes)
    largest = int(degree.max()) if len(degree) else 0
    least, most = math.ceil(math.log2(max(largest, 1))), min(DIGITS[dtype], FINEST)
    if least > most:
        return None
    parts = 2 ** int(draw.integers(least, most + 1))
    lost = random_losses(draw, structure, pick(draw, (0.05, 0.3, 0.7)))
    share = torch.from_numpy(draw.choice([0.0, 0.0, 0.5, 0.75], len(degree)))  # of one that is left where something is lost
    counts = random_counts(draw, structure, degree, parts, heads)
    counts = torch.where(lost[structure.row].unsqueeze(1), (counts * share[structure.row].unsqueeze(1)).floor(), counts)
    signs = pick(draw, ("positive", "mixed", "negative", "alternating"))
    weight = (random_signs(draw, signs, len(structure.row), heads) * counts / parts).to(dtype)
    return weight, {"signs": signs, "rows": "exactly one", "parts": str(parts), "lost": f"{int(lost.sum())} of {len(lost)} nodes"}


def random_counts(draw: Generator, structure: Structure, degree: Tensor, parts: int, heads: int) -> Tensor:
    """Whole numbers, 1 or more, that sum to ``parts`` in every row, [E, H]."""
    edges = len(structure.row)
    size = torch.from_numpy(np.exp(pick(draw, (0.0, 1.0, 3.0)) * draw.standard_normal((edges, heads))))
    counts = (size / structure.sum_rows(size)[structure.row] * (parts - degree)[structure.row].unsqueeze(1)).floor() + 1
    first = _first_of_row(structure, degree)
    left = parts - structure.sum_rows(counts)
    filled = degree > 0
    counts[first[filled]] += left[filled]  # what rounding down has left
    return counts


def _first_of_row(structure: Structure, degree: Tensor) -> Tensor:
    """One edge of every row that has any, [N]."""
    order = torch.argsort(structure.row, stable=True)
    begins = torch.cumsum(degree, 0) - degree
    return torch.cat([order, order.new_zeros(1)])[begins]


def random_losses(draw: Generator, structure: Structure, share: float) -> Tensor:
    """The nodes whose rows sum to less than one, [N]: all others reach one of them, or have no edges."""
    degree = torch.bincount(structure.row, minlength=structure.num_nodes)
    lost = torch.from_numpy(draw.random(structure.num_nodes) < share)
    while bool((stranded := ~_reaching(structure, lost | (degree == 0))).any()):
        nodes = stranded.nonzero().squeeze(1)
        lost[nodes[int(draw.integers(len(nodes)))]] = True
    return lost


def _reaching(structure: Structure, target: Tensor) -> Tensor:
    """The nodes from which edges lead to a node of ``target``."""
    reached = target.clone()
    while True:
        further = reached.clone()
        further[structure.row[reached[structure.column]]] = True
        if torch.equal(further, reached):
            return reached
        reached = further
