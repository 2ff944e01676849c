"""Batches of small random graphs: empty ones, isolated nodes, self loops, parallel edges, rings, stars, paths."""

from __future__ import annotations

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray

from campaign.blocks import Structure

Ints = NDArray[np.int64]
LARGEST = 40
COUNTS = {"cpu": ((1, 2, 5, 32, 128, 256), (1, 1, 1, 2, 4, 4)), "cuda": ((1, 2, 16, 256, 768, 1024), (1, 1, 1, 2, 4, 4))}
PATTERNS = ("random", "random", "random", "ring", "star", "path", "loops")


def pick(draw: Generator, options: tuple, weights: tuple[float, ...] | None = None):  # type: ignore[no-untyped-def]
    """One of some options, as the Python object that it is."""
    share = None if weights is None else np.array(weights) / sum(weights)
    return options[int(draw.choice(len(options), p=share))]


def random_sizes(draw: Generator, device: str) -> Ints:
    count = pick(draw, *COUNTS[device])
    largest = pick(draw, (4, 12, 24, LARGEST))
    sizes = draw.integers(2, largest + 1, count)
    if draw.random() < 0.3:
        sizes[draw.random(count) < 0.1] = draw.integers(0, 2)  # empty graphs, or single nodes
    if draw.random() < 0.03:
        sizes[:] = draw.integers(0, 3)
    ended = len(sizes) - int((np.cumsum(sizes[::-1]) == 0).sum())  # a batch does not know of empty graphs at its end
    return sizes[: max(ended, 1)].astype(np.int64)


def random_structure(draw: Generator, device: str) -> tuple[Structure, str]:
    """Rows, columns and sizes on the CPU, and what they look like."""
    sizes = random_sizes(draw, device)
    pattern = pick(draw, PATTERNS)
    row, column = _edges(draw, sizes, pattern)
    if len(row) and draw.random() < 0.3:  # parallel edges
        again = draw.integers(0, len(row), max(len(row) // 10, 1))
        row, column = np.append(row, row[again]), np.append(column, column[again])
    if len(row) and draw.random() < 0.2:  # isolated nodes
        lonely = draw.random(int(sizes.sum())) < 0.2
        row, column = row[~lonely[row]], column[~lonely[row]]
    order = draw.permutation(len(row)) if draw.random() < 0.6 else np.argsort(row, kind="stable")
    return Structure(*(torch.from_numpy(part.copy()) for part in (row[order], column[order], sizes))), pattern


def _edges(draw: Generator, sizes: Ints, pattern: str) -> tuple[Ints, Ints]:
    first = np.cumsum(sizes) - sizes
    graph = np.repeat(np.arange(len(sizes)), sizes)
    node = np.arange(len(graph))
    place, size = node - first[graph], sizes[graph]
    if pattern == "random":
        count = draw.poisson(draw.uniform(0.3, 5) * sizes) * (sizes > 0)
        owner = np.repeat(np.arange(len(sizes)), count)
        ends = [first[owner] + (draw.random(len(owner)) * sizes[owner]).astype(np.int64) for _ in range(2)]
        return ends[0], ends[1]
    if pattern == "ring":
        beyond = first[graph] + (place + 1) % size
        return np.append(node, beyond), np.append(beyond, node)
    if pattern == "star":
        leaf, hub = node[place > 0], first[graph][place > 0]
        return np.append(leaf, hub), np.append(hub, leaf)
    if pattern == "path":
        inner = node[place + 1 < size]
        return np.append(inner, inner + 1), np.append(inner + 1, inner)
    return np.append(node, node), np.append(node, first[graph])  # self loops, and an edge to the first node
