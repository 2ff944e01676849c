"""Grids as lists of neighbours."""

from __future__ import annotations

import numpy as np


def lattice(*sides: int) -> tuple[np.ndarray, np.ndarray]:
    """Neighbours in a grid of these sides."""
    numbers = np.arange(np.prod(sides)).reshape(sides)
    pairs = []
    for axis in range(len(sides)):
        ends = (np.moveaxis(numbers, axis, 0)[:-1].ravel(), np.moveaxis(numbers, axis, 0)[1:].ravel())
        pairs += [np.stack(ends), np.stack(ends[::-1])]
    row, column = np.concatenate(pairs, axis=1)
    order = np.argsort(row, kind="stable")
    return np.searchsorted(row[order], np.arange(numbers.size + 1)), column[order]
