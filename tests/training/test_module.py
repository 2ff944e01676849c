from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from convergent import ConvergenceError
from convergent.tasks.value_iteration import ValueIteration
from convergent.training.config import TrainConfig
from convergent.training.module import Training, _share
from convergent.training.problem import Problem, ValueIterationProblem
from convergent.training.run import CHECKPOINT, CONFIG, METRICS, RESULT, read_rows
from convergent.training.train import train

SMALL = TrainConfig(
    task="value-iteration",
    model="CGS(8)",
    steps=30,
    graphs=4,
    renew=7,
    clip=0.5,
    validate_every=10,
    validation_graphs=4,
    checkpoint_every=10,
    task_settings={"states": [8, 12], "actions": [2, 4]},
    model_settings={"layers": 1, "hidden": [16], "decoder": [16]},
)


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


# --- captured steps, which on a CPU do the same work on the same tensors ---


@pytest.fixture
def forced(monkeypatch) -> None:
    monkeypatch.setattr("convergent.training.module.can_capture", lambda *_: True)


def rows(folder: Path) -> list[dict[str, float]]:
    return list(read_rows(folder / METRICS))


def alike(left: Path, right: Path) -> None:
    """In all but bounds, which are made of rounding errors."""
    for one, other in zip(rows(left), rows(right), strict=True):
        assert {**one, "worst_bound": 0} == pytest.approx({**other, "worst_bound": 0}, rel=1e-5)
        assert 0 < one["worst_bound"] < 1e-5


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("convergent-ahead")]


@pytest.mark.parametrize("change", [{}, {"schedule": "constant", "clip": None}, {"renew": 1}])
def test_a_captured_run_is_an_ordinary_one(tmp_path, monkeypatch, change) -> None:
    config = replace(SMALL, **change)
    plain = train(config, tmp_path / "plain")
    monkeypatch.setattr("convergent.training.module.can_capture", lambda *_: True)
    found = train(config, tmp_path / "captured")
    alike(tmp_path / "captured", tmp_path / "plain")
    assert (found["steps"], found["solves"]["graphs"], found["best_step"]) == (30, 120, plain["best_step"])
    assert found["validation"] == pytest.approx(plain["validation"], rel=1e-3)
    assert threads() == []


def cut_and_resumed(folder: Path, config: TrainConfig, at: int) -> None:
    """A run of ``at`` steps, made into one that was cut short."""
    train(replace(config, steps=at), folder)
    (folder / RESULT).unlink()
    whole = folder.parent / "whole" / CONFIG
    (folder / CONFIG).write_text(whole.read_text())


@pytest.mark.usefixtures("forced")
def test_a_captured_run_resumes(tmp_path) -> None:
    whole = train(SMALL, tmp_path / "whole")
    cut_and_resumed(tmp_path / "cut", SMALL, 20)
    found = train(None, tmp_path / "cut", resume=True)
    alike(tmp_path / "cut", tmp_path / "whole")
    assert found["solves"]["graphs"] == whole["solves"]["graphs"]


@pytest.mark.parametrize("first", [True, False])
def test_a_run_resumes_in_the_other_way(tmp_path, monkeypatch, first) -> None:
    monkeypatch.setattr("convergent.training.module.can_capture", lambda *_: first)
    train(SMALL, tmp_path / "whole")
    cut_and_resumed(tmp_path / "cut", SMALL, 20)
    state = torch.load(tmp_path / "cut" / CHECKPOINT, weights_only=True)
    group = state["optimizer_states"][0]["param_groups"][0]
    assert (type(group["lr"]), group["fused"], group["capturable"]) == (float, None, False)
    monkeypatch.setattr("convergent.training.module.can_capture", lambda *_: not first)
    train(None, tmp_path / "cut", resume=True)
    alike(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.usefixtures("forced")
def test_an_error_in_the_thread_ends_the_run_and_the_thread(tmp_path, monkeypatch) -> None:
    sample = ValueIterationProblem.batch

    def batch(self, stream: int, number: int, graphs: int):
        if number == 2:
            raise RuntimeError("no such batch")
        return sample(self, stream, number, graphs)

    monkeypatch.setattr(ValueIterationProblem, "batch", batch)
    with pytest.raises(RuntimeError, match="no such batch"):
        train(SMALL, tmp_path / "run")
    assert threads() == []


@pytest.mark.usefixtures("forced")
def test_an_interrupt_leaves_no_thread(tmp_path, monkeypatch) -> None:
    step = Training.training_step

    def interrupted(self, item, index):
        if index == 12:
            raise KeyboardInterrupt
        return step(self, item, index)

    monkeypatch.setattr(Training, "training_step", interrupted)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        train(SMALL, tmp_path / "run")
    assert threads() == []


def looking(place: int, throw: bool = True) -> Training:
    """A captured training that counts one in that place of its ledger."""
    config = replace(SMALL, model_settings={**SMALL.model_settings, "solver": f"Auto;throw={throw}"})
    problem = Problem.of(config)
    training = Training(config, problem, problem.build())
    training.__dict__["captured"] = object()
    training.ledger.numbers[place] = 1
    return training


def test_what_went_wrong_is_raised_at_a_look() -> None:
    with pytest.raises(ConvergenceError, match="1 graphs did not reach the tolerance in the steps so far"):
        looking(0).look()
    with pytest.raises(ConvergenceError, match="1 steps had a loss or a gradient that is not finite"):
        looking(1).look()
    assert looking(0, throw=False).look() == {"loss": 0.0}


@pytest.mark.usefixtures("forced")
def test_a_model_that_went_wrong_is_not_kept(tmp_path, monkeypatch) -> None:
    step = Training.training_step

    def failing(self, item, index):
        loss = step(self, item, index)
        self.ledger.numbers[0] += index == 5
        return loss

    monkeypatch.setattr(Training, "training_step", failing)
    with pytest.raises(ConvergenceError, match="did not reach the tolerance"):
        train(SMALL, tmp_path / "run")
    assert not (tmp_path / "run" / CHECKPOINT).exists()


def test_a_batch_is_moved_and_indexed_once(tmp_path, monkeypatch) -> None:
    seen = []
    step = Training.training_step

    def watched(self, item, index):
        seen.append(item[0].graph)
        return step(self, item, index)

    monkeypatch.setattr(Training, "training_step", watched)
    train(replace(SMALL, steps=14), tmp_path / "run")
    assert len({id(graph) for graph in seen}) == 2
