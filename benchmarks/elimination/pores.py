"""Pore networks as linear systems: conductances spread over decades, as in rock.

A pore on the inlet or the outlet is pinned: it reads nobody. Every other one is a mean of its neighbours, weighted by a power of
the conductances that differs from head to head, less a loss.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.linear_system import LinearSystem
from convergent import Graph

GRAIN = 2.0**53  # weights are whole multiples of 1 / GRAIN, so that rows sum to what they are meant to


def rock(networks: list[Any], heads: int, loss: float) -> LinearSystem:
    sizes = [len(network.position) for network in networks]
    starts = np.cumsum([0, *sizes])
    ends = np.concatenate([network.throats + start for network, start in zip(networks, starts, strict=False)])
    row, column = np.concatenate([ends, ends[:, ::-1]]).T
    conductance = np.tile(np.concatenate([network.conductance for network in networks]), 2)
    pinned = np.concatenate([network.inlet | network.outlet for network in networks])
    weight = np.stack([conductance**power for power in np.linspace(0.8, 1.0, heads)], axis=1)
    scale = np.stack([np.bincount(row, values, int(starts[-1])) for values in weight.T], axis=1)
    weight = with_sums(weight, row, int(starts[-1]), loss)
    weight[pinned[row]] = 0.0
    graph = Graph(torch.from_numpy(np.stack([row, column])), int(starts[-1]), torch.repeat_interleave(torch.tensor(sizes)))
    right = torch.rand(3, int(starts[-1]), heads, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    right[1] = 1.0
    return LinearSystem(graph, torch.from_numpy(weight), right[:2].contiguous(), right[2:].contiguous(), torch.from_numpy(scale))


def with_sums(weight: np.ndarray, row: np.ndarray, nodes: int, loss: float) -> np.ndarray:
    """Rows that sum to exactly 1 - loss, to the grain: what rounding leaves goes to the largest weight of a row."""
    order = np.argsort(row, kind="stable")
    begin = np.searchsorted(row[order], np.arange(nodes))
    used = begin < np.append(begin[1:], len(row))
    for head in range(weight.shape[1]):
        values = weight[:, head] / np.bincount(row, weight[:, head], nodes)[row]
        values = np.floor(values * (GRAIN * (1 - loss)))
        missing = np.floor(GRAIN * (1 - loss)) - np.bincount(row, values, nodes)
        largest = order[np.lexsort((values[order], row[order]))][np.append(begin[1:], len(row))[used] - 1]
        values[largest] += missing[used]
        weight[:, head] = values / GRAIN
    return weight
