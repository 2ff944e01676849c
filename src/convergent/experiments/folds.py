"""Cross-validation of graph classifiers with all folds at once.

The models of all folds are copies that are trained side by side, each on its own graphs, so that ten small trainings take the time
of one that keeps a device busy. Whatever works on single nodes, edges or graphs needs no change for that, as long as every copy has
the same number of each: batches are padded to it. Layers with weights hold those of every copy and apply them to its share of rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from convergent.experiments.kept import Kept
from convergent.nn.model import GraphModel
from convergent.tasks.batch import GraphBatch

Picked = NDArray[np.int64]  # numbers of graphs


class Split(NamedTuple):
    """The graphs of one fold."""

    train: Picked
    test: Picked


@dataclass(frozen=True)
class Recipe:
    """How classifiers are trained.

    Attributes:
        epochs: times that every training graph is seen.
        graphs: in a step, at most; an epoch is divided into steps of equal size.
        rate: of Adam.
        restart: epochs after which the cosine of the rate starts again.
        tests: in an epoch, evenly spread over its steps, of which the last is followed by one; no more than there are steps.
        seed: of the order of graphs.
    """

    epochs: int
    graphs: int = 128
    rate: float = 1e-3
    restart: int = 32
    tests: int = 1
    seed: int = 0


# --- graphs ---


class Ragged(NamedTuple):
    """Rows of nodes or edges of all graphs, one graph after the other, and behind them a row for padding."""

    start: Tensor  # [G + 1] the first row of every graph, and the padding's
    size: Tensor  # [G + 1] rows, none of padding
    sizes: Picked  # the same for the host, [G]

    @staticmethod
    def of(sizes: Sequence[int], device: str) -> Ragged:
        size = torch.tensor([*sizes, 0])
        return Ragged((size.cumsum(0) - size).to(device), size.to(device), np.array(sizes))

    def most(self, picked: Sequence[Picked]) -> int:
        """Rows of the copy that has the most."""
        return max(int(self.sizes[part].sum()) for part in picked)

    def gather(self, graphs: Tensor, rows: int) -> Places:
        """The rows of graphs [copies, slots]; the last slot of each copy is filled up to ``rows`` with padding."""
        size = self.size[graphs]
        size[:, -1] = rows - size.sum(1)
        size, total = size.flatten(), graphs.shape[0] * rows
        slot = torch.repeat_interleave(size, output_size=total)
        place = torch.arange(total, device=size.device) - (size.cumsum(0) - size)[slot]
        padding = (slot + 1) % graphs.shape[1] == 0
        source = torch.where(padding, self.start[-1], self.start[graphs.flatten()[slot]] + place)
        return Places(source, slot, place, padding, size)


class Places(NamedTuple):
    """Where the rows of a batch come from, [copies * rows] each but for the last."""

    source: Tensor  # the row among those of all graphs
    slot: Tensor  # the graph in the batch
    place: Tensor  # the number within that graph
    padding: Tensor  # bool
    size: Tensor  # of every graph in the batch, [copies * slots]


class Store:
    """All graphs of a set on a device, from which batches are gathered."""

    def __init__(self, graphs: Sequence[GraphBatch], device: str):
        blank = torch.zeros(1, graphs[0].x.shape[1])
        self.x = torch.cat([*(graph.x for graph in graphs), blank]).to(device)
        self.edges = torch.cat([*(graph.edge_index for graph in graphs), torch.zeros(2, 1, dtype=torch.long)], 1).to(device)
        self.y = torch.cat([*(graph.y for graph in graphs), torch.zeros(1, dtype=torch.long)]).to(device)
        self.by_node = Ragged.of([len(graph.x) for graph in graphs], device)
        self.by_edge = Ragged.of([graph.edge_index.shape[1] for graph in graphs], device)

    def batch(self, picked: Sequence[Picked]) -> GraphBatch:
        """The picked graphs of every copy, one copy after the other, with as many nodes, edges and graphs for each.

        Every copy ends with a graph of padding, which has a node at least; its edges are self loops.
        """
        slots = max(map(len, picked)) + 1
        filled = [np.concatenate([part, np.full(slots - len(part), len(self.y) - 1)]) for part in picked]
        graphs = torch.from_numpy(np.stack(filled)).to(self.x.device)  # [copies, slots]
        nodes = self.by_node.gather(graphs, self.by_node.most(picked) + 1)
        edges = self.by_edge.gather(graphs, self.by_edge.most(picked))
        first = (nodes.size.cumsum(0) - nodes.size)[edges.slot]
        # spread over the nodes of padding in rising order, so that edges that are sorted stay so
        loop = edges.place * nodes.size[edges.slot] // edges.size[edges.slot]
        index = torch.where(edges.padding, loop, self.edges[:, edges.source]) + first
        return GraphBatch(
            self.x[nodes.source],
            index,
            self.x.new_ones(index.shape[1], 1),
            self.y[graphs.flatten()],
            nodes.slot,
            graphs.numel(),
            weight=(~nodes.padding).to(self.x.dtype).unsqueeze(1),
            real=graphs.flatten() < len(self.y) - 1,
        )


# --- models ---


class Linears(nn.Module):
    """The same linear layer in every copy, to begin with: [copies * rows, inputs] -> [copies * rows, outputs]."""

    def __init__(self, one: nn.Linear, copies: int):
        super().__init__()
        self.weight = repeated(one.weight.T, copies)
        self.bias = None if one.bias is None else repeated(one.bias.unsqueeze(0), copies)

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x, 0, bias=True)

    def part(self, x: Tensor, begin: int, bias: bool = False) -> Tensor:
        """What it makes of some of its inputs, those from ``begin`` on."""
        weight = self.weight[:, begin : begin + x.shape[1]]  # [copies, inputs, outputs]
        x = x.reshape(len(weight), -1, x.shape[1])  # [copies, rows, inputs]
        out = torch.baddbmm(self.bias, x, weight) if bias and self.bias is not None else x @ weight
        return out.flatten(0, 1)


def repeated(values: Tensor, copies: int) -> nn.Parameter:
    return nn.Parameter(values.detach().expand(copies, *values.shape).clone())


def side_by_side(model: nn.Module, copies: int) -> nn.Module:
    """Copies of a model as one: its linear layers, changed in place. Other layers with weights have to bring theirs."""
    for name, part in model.named_children():
        setattr(model, name, Linears(part, copies) if isinstance(part, nn.Linear) else side_by_side(part, copies))
    return model


def scores(model: nn.Module, batch: GraphBatch) -> Tensor:
    """Of every class, [graphs, classes]."""
    return model(batch.x, batch.graph, batch.edge_attr) if isinstance(model, GraphModel) else model(batch)


# --- training ---


class Trace(NamedTuple):
    """What became of all folds."""

    correct: Tensor  # test graphs that each fold gets right, in every test, [folds, tests]
    loss: Tensor  # of training, mean over the steps of an epoch, [folds, epochs]
    seconds: float


def cross_validate(model: nn.Module, store: Store, splits: Sequence[Split], recipe: Recipe, state: Path | None = None) -> Trace:
    """Train the copies of a model, one for every split, and test them now and then.

    In the file ``state`` is kept where it stands; a call that finds one there goes on with it.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, recipe.restart)
    test = store.batch([split.test for split in splits])
    kept = Kept(state, model, optimizer)
    correct, losses = kept.correct, kept.losses
    for epoch in range(len(losses), recipe.epochs):
        parts = steps(splits, recipe, epoch)
        total = torch.zeros(len(splits), device=store.x.device)
        for number, picked in enumerate(parts):
            schedule.step(epoch + number / len(parts))
            total += train_step(model, optimizer, store.batch(picked), len(splits))
            if (number + 1) * recipe.tests // len(parts) > number * recipe.tests // len(parts):
                correct.append(count_correct(model, test, len(splits)))
        losses.append(total / len(parts))
        kept.now_and_then()
    return Trace(torch.stack(correct, 1).cpu(), torch.stack(losses, 1).cpu(), kept.seconds)


def steps(splits: Sequence[Split], recipe: Recipe, epoch: int) -> list[list[Picked]]:
    """The graphs of every step of an epoch, for every copy; they depend on the seed, the fold and the epoch alone."""
    count = math.ceil(max(len(split.train) for split in splits) / recipe.graphs)
    orders = [np.random.default_rng([recipe.seed, fold, epoch]).permutation(split.train) for fold, split in enumerate(splits)]
    return [list(parts) for parts in zip(*(np.array_split(order, count) for order in orders), strict=True)]


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: GraphBatch, copies: int) -> Tensor:
    """Cross entropy of every copy, [copies]. Their sum has for each copy the gradient of its own."""
    model.train()
    assert batch.real is not None
    losses = nn.functional.cross_entropy(scores(model, batch), batch.y, reduction="none") * batch.real
    mean = losses.view(copies, -1).sum(1) / batch.real.view(copies, -1).sum(1)
    optimizer.zero_grad()
    mean.sum().backward()
    optimizer.step()
    return mean.detach()


@torch.no_grad()
def count_correct(model: nn.Module, batch: GraphBatch, copies: int) -> Tensor:
    model.eval()
    assert batch.real is not None
    right = (scores(model, batch).argmax(1) == batch.y) & batch.real
    return right.view(copies, -1).sum(1)
