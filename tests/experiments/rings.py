"""Small graphs of two classes, and some of them for each of three copies."""

from __future__ import annotations

import numpy as np
import torch

from convergent.tasks.batch import GraphBatch

PICKED = [np.array([3, 0, 7]), np.array([5, 1]), np.array([2, 8, 9])]


def graphs(count: int = 30, seed: int = 0) -> list[GraphBatch]:
    """Rings with chords; the class is whether there are more nodes of one colour than of the other."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        size = int(rng.integers(4, 9))
        ring = np.stack([np.arange(size), (np.arange(size) + 1) % size])
        pairs = np.unique(np.concatenate([ring, ring[::-1], [[0, 2], [2, 0]]], 1), axis=1)
        colour = torch.from_numpy(rng.integers(0, 2, size))
        x = torch.nn.functional.one_hot(colour, 2).float()
        y = (colour.float().mean() > 0.5).long().view(1)
        made.append(
            GraphBatch(x, torch.from_numpy(pairs), torch.ones(pairs.shape[1], 1), y, torch.zeros(size, dtype=torch.long), 1)
        )
    return made
