from __future__ import annotations

import numpy as np
import pytest
import torch

from convergent.tasks.value_iteration import ValueIteration
from convergent.training.config import TrainConfig
from convergent.training.module import Training, _share
from convergent.training.problem import Problem


def test_shares_are_a_partition() -> None:
    batch = ValueIteration((8, 12), (2, 4)).sample(7, np.random.default_rng(0))
    shares = [_share(batch, rank, 3) for rank in range(3)]
    assert [share.num_graphs for share in shares] == [3, 2, 2]
    assert sum(len(share.x) for share in shares) == len(batch.x)
    assert torch.equal(torch.cat([share.y for share in shares]).sort(0).values, batch.y.sort(0).values)
    assert _share(batch, 0, 1) is batch


@pytest.mark.parametrize("schedule", ["restarts", "one-cycle", "constant"])
def test_schedules(schedule) -> None:
    config = TrainConfig(task="value-iteration", model="1-CGS(16)", schedule=schedule, steps=64)
    problem = Problem.of(config)
    made = Training(config, problem, problem.build()).configure_optimizers()
    optimizer, scheduler = made["optimizer"], made["lr_scheduler"]["scheduler"]
    rates = []
    for _ in range(64):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert max(rates) <= 1e-3 + 1e-12
    if schedule == "restarts":
        assert rates[0] == rates[32] == pytest.approx(1e-3)
        assert rates[31] < 1e-4
    if schedule == "constant":
        assert min(rates) == max(rates)
