"""A PyG model with a convergent layer: which node of a long ring carries the mark, as seen from everywhere.

A mark sits on one node of each ring; every node is asked for the mark's sign. Layers that pass messages see only as far as they
are deep; the fixed point sees all the way round.

    python examples/pyg_layer.py [--steps 150]
"""

from __future__ import annotations

import argparse

import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv

from convergent.nn import ConvergentConv


def rings(count: int, size: int, generator: torch.Generator) -> Batch:
    """Rings with one marked node each, plus or minus one; the answer of every node is the sign."""
    items = []
    for _ in range(count):
        node = torch.arange(size)
        edges = torch.cat([torch.stack([node, node.roll(1)]), torch.stack([node, node.roll(-1)])], 1)
        sign = 1.0 if torch.rand(1, generator=generator) < 0.5 else -1.0
        x = torch.zeros(size, 1)
        x[torch.randint(size, (1,), generator=generator)] = sign
        items.append(Data(x=x, edge_index=edges, y=torch.full((size,), float(sign > 0))))
    return Batch.from_data_list(items)


class Local(torch.nn.Module):
    """Three rounds of messages."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([GCNConv(1, 16), GCNConv(16, 16), GCNConv(16, 16)])
        self.head = torch.nn.Linear(16, 1)

    def forward(self, data: Batch) -> torch.Tensor:
        x = data.x
        for layer in self.layers:
            x = torch.relu(layer(x, data.edge_index))
        return self.head(x).squeeze(1)


class Convergent(torch.nn.Module):
    """One fixed point."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = ConvergentConv(1, heads=16, gamma=0.99)
        self.norm = torch.nn.LayerNorm(16)
        self.head = torch.nn.Linear(16, 1)

    def forward(self, data: Batch) -> torch.Tensor:
        return self.head(self.norm(self.conv(data.x, data.edge_index, batch=data.batch))).squeeze(1)


def train(model: torch.nn.Module, steps: int, size: int) -> float:
    """The share of nodes of unseen rings that answer right."""
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        data = rings(16, size, generator)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(data), data.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        data = rings(50, size, generator)
        return float(((model(data) > 0) == (data.y > 0.5)).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="A PyG model with a convergent layer.")
    parser.add_argument("--steps", type=int, default=150, help="of training (default: %(default)s)")
    parser.add_argument("--size", type=int, default=24, help="of a ring (default: %(default)s)")
    settings = parser.parse_args()
    for model in (Local(), Convergent()):
        torch.manual_seed(0)
        for module in model.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
        share = train(model, settings.steps, settings.size)
        print(f"{type(model).__name__:>10}: {share:.0%} of the nodes know the mark")


if __name__ == "__main__":
    main()
