"""What labels allow: graphs that colour refinement cannot tell apart get one answer from every network that passes messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from convergent.experiments.on_sets import read
from convergent.tasks import classification
from convergent.tasks.batch import GraphBatch


def measure(settings: dict[str, Any], *_: Any) -> dict[str, list[float]]:
    """Work: the most that can be right of a set's training and test graphs, in per cent: mean and deviation over folds.

    Of test graphs that is in hindsight: with their own labels known.
    """
    data = read(settings["set"])
    kinds, labels = kinds_of(data.graphs), data.labels.tolist()
    splits = classification.folds(data.labels, settings["seed"])[: settings["folds"]]
    found = {}
    for part, name in enumerate(("train", "test")):
        shares = [100 * most([kinds[graph] for graph in split[part]], [labels[graph] for graph in split[part]]) for split in splits]
        found[name] = [float(np.mean(shares)), float(np.std(shares))]
    return found


def kinds_of(graphs: Sequence[GraphBatch]) -> list[int]:
    """A number for every graph, the same for those that colour refinement (Weisfeiler and Leman) cannot tell apart."""
    names: dict[Any, int] = {}

    def number(key: Any) -> int:
        return names.setdefault(key, len(names))

    neighbours = []
    for graph in graphs:
        lists: list[list[int]] = [[] for _ in graph.x]
        for node, other in graph.edge_index.t().tolist():
            lists[node].append(other)
        neighbours.append(lists)
    colours = [[number(tuple(row)) for row in graph.x.tolist()] for graph in graphs]
    before = 0
    while (count := len({colour for each in colours for colour in each})) > before:  # a round tells apart what the last one did
        before = count
        colours = [
            [number((own[node], *sorted(own[other] for other in lists[node]))) for node in range(len(own))]
            for own, lists in zip(colours, neighbours, strict=True)
        ]
    return [number(("graph", *sorted(each))) for each in colours]


def most(kinds: Sequence[int], labels: Sequence[int]) -> float:
    """The share that is right if every kind gets the label that most of it have."""
    largest: dict[int, int] = {}
    for (kind, _), count in Counter(zip(kinds, labels, strict=True)).items():
        largest[kind] = max(largest.get(kind, 0), count)
    return sum(largest.values()) / len(labels)
