from __future__ import annotations

import torch

from convergent.baselines import GNN


def test_it_sees_as_far_as_its_layers() -> None:
    torch.manual_seed(0)
    chain = torch.stack([torch.arange(5), torch.arange(1, 6)])  # i depends on i + 1
    model = GNN(2, 1, layers=2, outputs=3)
    x = torch.randn(6, 2)
    answer, solution = model(x, chain, return_solution=True)
    assert answer.shape == (6, 3)
    assert solution is None
    moved = x.clone()
    moved[3] += 1
    changed = (model(moved, chain) != answer).any(1)
    assert changed.tolist() == [False, True, True, True, False, False]
