from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from convergent import Anderson, Auto, ConvergenceError
from convergent.nn.model import GraphModel
from convergent.tasks.batch import GraphBatch
from convergent.training import captured
from convergent.training.captured import Capacity, CapturedStep, as_numbers, as_tensors, can_capture
from convergent.training.config import TrainConfig
from convergent.training.problem import TRAINING, Problem
from convergent.training.run import CHECKPOINT, METRICS, read_rows
from convergent.training.train import train

VALUES = TrainConfig(
    task="value-iteration",
    model="CGS(8)",
    graphs=6,
    clip=0.5,
    task_settings={"states": [8, 14], "actions": [2, 4]},
    model_settings={"layers": 2, "hidden": [16], "width": 16, "decoder": [16]},
)
PORES = TrainConfig(task="pore-networks", model="CGS(4)", graphs=3, task_settings={"pores": [20, 30]})


def built(config: TrainConfig, device: str = "cpu") -> tuple[Problem, GraphModel, torch.optim.Optimizer]:
    torch.manual_seed(config.seed)
    problem = Problem.of(config)
    model = problem.build().to(device)
    return problem, model, torch.optim.Adam(model.parameters(), lr=config.rate)


def batches(problem: Problem, config: TrainConfig, numbers: list[int]) -> list[GraphBatch]:
    made = {number: problem.batch(TRAINING, number, config.graphs) for number in set(numbers)}
    return [made[number] for number in numbers]


def captured_losses(config: TrainConfig, numbers: list[int], device: str = "cpu") -> tuple[list[float], CapturedStep]:
    problem, model, optimizer = built(config, device)
    step = CapturedStep(model, problem.loss, optimizer, config.clip)
    found = batches(problem, config, numbers)
    ready = {id(batch): step.prepare(batch) for batch in found}
    return [float(step(ready[id(batch)])) for batch in found], step


def eager_losses(config: TrainConfig, numbers: list[int], device: str = "cpu") -> list[float]:
    problem, model, optimizer = built(config, device)
    losses = []
    for batch in (batch.to(device) for batch in batches(problem, config, numbers)):
        loss = problem.loss(model, model(batch.x, batch.graph, batch.edge_attr), batch) / len(batch.y)
        optimizer.zero_grad()
        loss.backward()
        if config.clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


# --- padding ---


def gradients(problem: Problem, model: GraphModel, batch: GraphBatch) -> dict[str, Tensor]:
    model.zero_grad()
    problem.loss(model, model(batch.x, batch.graph, batch.edge_attr), batch).backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("normalization", ["clip", "sigmoid", "softmax", "signed"])
@pytest.mark.parametrize("config", [VALUES, PORES], ids=["values", "pores"])
def test_padding_changes_no_gradient(config, normalization) -> None:
    config = replace(config, model_settings={**config.model_settings, "normalization": normalization})
    problem, model, _ = built(config)
    model.double()
    plain = problem.batch(TRAINING, 0, config.graphs).mapped(lambda each: each.double() if each.is_floating_point() else each)
    padded = Capacity().pad(plain)
    assert padded.num_graphs > plain.num_graphs
    assert bool(torch.isfinite(model(padded.x, padded.graph, padded.edge_attr)).all())
    mine, truth = gradients(problem, model, padded), gradients(problem, model, plain)
    assert mine.keys() == truth.keys()
    rounding = 1e-13 * max(float(value.abs().max()) for value in truth.values())  # all there is where a gradient is zero
    for name, value in truth.items():
        torch.testing.assert_close(mine[name], value, rtol=1e-6, atol=rounding, msg=lambda text, name=name: f"{name}: {text}")


def test_a_capacity_grows_where_it_has_to_and_stays() -> None:
    problem = Problem.of(VALUES)
    capacity, small, large = Capacity(), problem.batch(TRAINING, 0, 3), problem.batch(TRAINING, 1, 80)
    first = capacity.pad(small)
    assert (len(first.x), first.edge_index.shape[1], first.num_graphs) == (64, 128, 64)
    second = capacity.pad(large)
    assert len(second.x) >= 1.15 * len(large.x)
    assert second.num_graphs == 128
    third = capacity.pad(small)
    assert third.x.shape == second.x.shape
    assert int(third.graph.out_degree.max()) <= 16  # self loops are spread out


# --- steps ---


@pytest.mark.parametrize("config", [VALUES, PORES], ids=["values", "pores"])
def test_steps_are_those_of_the_ordinary_loop(config) -> None:
    numbers = [0, 0, 0, 1, 1, 2, 2, 0, 3, 3]
    losses, step = captured_losses(config, numbers)
    assert losses == pytest.approx(eager_losses(config, numbers), rel=1e-5)
    seen = step.ledger.read()
    assert (seen.graphs, seen.not_converged, seen.not_finite) == (len(numbers) * config.graphs, 0, 0)
    assert 0 < seen.worst_bound < 1e-4
    assert seen.most_iterations >= seen.iterations > 0


def test_a_batch_that_outgrows_the_capacity_is_recorded_again() -> None:
    problem, model, optimizer = built(VALUES)
    step = CapturedStep(model, problem.loss, optimizer)
    for graphs, recordings in ((4, 1), (5, 1), (80, 2), (4, 2), (80, 2)):
        step(step.prepare(problem.batch(TRAINING, graphs, graphs)))
        assert step.recordings == recordings
    assert step.ledger.read().graphs == 173


def test_longer_rows_than_were_allowed_for_are_recorded_again() -> None:
    problem, model, optimizer = built(VALUES)
    step = CapturedStep(model, problem.loss, optimizer)
    batch = problem.batch(TRAINING, 0, 4)
    step(step.prepare(batch))
    crowded = batch.edge_index.clone()
    crowded[1, : int(batch.sizes[0])] = 0  # all of the first graph reads one node, within its own rows
    crowded[0, :20], crowded[1, :20] = 0, 1
    step(step.prepare(replace(batch, edge_index=crowded)))
    assert step.recordings == 2


def test_a_structure_that_kernels_cut_up_is_not_recorded(monkeypatch) -> None:
    numbers = [0, 1]
    monkeypatch.setattr(captured, "LARGEST_GRAPH", 8)
    losses, step = captured_losses(VALUES, numbers)
    assert (step.recordings, step.ledger.read().graphs) == (0, 12)
    assert losses == pytest.approx(eager_losses(VALUES, numbers), rel=1e-5)


def test_the_limits_are_those_of_the_kernels() -> None:
    pytest.importorskip("triton")
    from convergent.kernels import cuda

    assert (captured.LONGEST_ROW, captured.LARGEST_GRAPH) == (cuda.HEAVY, cuda.PIECE)


# --- the optimiser ---


@pytest.mark.parametrize("schedule", ["restarts", "constant"])
def test_a_schedule_changes_the_rate_in_place(schedule) -> None:
    _, _, optimizer = built(VALUES)
    schedules: dict[str, Any] = {
        "restarts": lambda: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4),
        "constant": lambda: torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0),
    }
    made = schedules[schedule]()
    as_tensors(optimizer, torch.device("cpu"))
    rate, rates = optimizer.param_groups[0]["lr"], []
    for _ in range(8):
        rates.append(float(rate))
        optimizer.step()
        made.step()
    assert optimizer.param_groups[0]["lr"] is rate
    assert rates[0] == rates[4] == pytest.approx(1e-3)
    assert rates[3] == pytest.approx(1e-3 if schedule == "constant" else 1.4645e-4, rel=1e-3)
    checkpoint = {"optimizer_states": [optimizer.state_dict()], "lr_schedulers": [made.state_dict()]}
    as_numbers(checkpoint)
    assert isinstance(checkpoint["optimizer_states"][0]["param_groups"][0]["lr"], float)
    assert [type(rate) for rate in checkpoint["lr_schedulers"][0]["_last_lr"]] == [float]
    assert optimizer.param_groups[0]["lr"] is rate  # that of the checkpoint is another


# --- when ---


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"capture": False}, False),
        ({"schedule": "one-cycle"}, False),
        ({"schedule": "constant"}, True),
        ({"model": "nl-CGS(8)"}, False),
        ({"model": "IGNN", "model_settings": {}}, False),
        ({"model_settings": {"dropout": 0.1}}, False),
        ({"model_settings": {"solver": Auto(max_iterations=20)}}, False),
        ({"model_settings": {"solver": Anderson()}}, False),
        ({"task": "pore-networks", "task_settings": {}, "model_settings": {}}, True),
    ],
)
def test_what_can_be_captured(change, expected, monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    config = replace(VALUES, **change)
    encoded = {name: value.encoded() if name == "solver" else value for name, value in config.model_settings.items()}
    config = replace(config, model_settings=encoded)
    problem = Problem.of(config)
    model = problem.build()
    assert can_capture(config, problem, model, torch.device("cuda"), 1) is expected
    assert not can_capture(config, problem, model, torch.device("cuda"), 2)
    assert not can_capture(config, problem, model, torch.device("cpu"), 1)


# --- on a GPU ---

LONG = [step // 8 for step in range(60)]


@pytest.mark.cuda
@pytest.mark.parametrize("config", [VALUES, PORES], ids=["values", "pores"])
def test_a_replayed_run_is_an_eager_one(config) -> None:
    losses, step = captured_losses(config, LONG, "cuda")
    assert losses == pytest.approx(eager_losses(config, LONG, "cuda"), rel=1e-3)
    assert step.recording is not None
    seen = step.ledger.read()
    assert (seen.graphs, seen.not_converged, seen.not_finite) == (60 * config.graphs, 0, 0)
    assert 0 < seen.worst_bound < 1e-4


@pytest.mark.cuda
def test_a_replayed_step_sees_every_new_batch() -> None:
    """Batches of one step each: a tensor that was not copied would show."""
    numbers = list(range(12))
    losses, step = captured_losses(VALUES, numbers, "cuda")
    assert losses == pytest.approx(eager_losses(VALUES, numbers, "cuda"), rel=1e-3)
    assert step.recordings <= 3


@pytest.mark.cuda
def test_a_batch_that_outgrows_the_capacity_is_captured_again() -> None:
    problem, model, optimizer = built(VALUES, "cuda")
    step = CapturedStep(model, problem.loss, optimizer)
    made = (problem.batch(TRAINING, graphs, graphs) for graphs in (4, 4, 80, 80, 4, 80))
    losses = [float(step(step.prepare(batch))) for batch in made]
    assert step.recordings == 2
    assert all(loss > 0 for loss in losses)
    assert step.ledger.read().graphs == 252


@pytest.mark.cuda
def test_a_captured_run_resumes(tmp_path: Path) -> None:
    config = replace(VALUES, steps=30, renew=7, checkpoint_every=10, validate_every=10, validation_graphs=4)
    whole = train(config, tmp_path / "whole", device="cuda")
    train(replace(config, steps=20), tmp_path / "cut", device="cuda")
    (tmp_path / "cut" / "result.json").unlink()
    (tmp_path / "cut" / "config.json").write_text((tmp_path / "whole" / "config.json").read_text())
    resumed = train(None, tmp_path / "cut", resume=True, device="cuda")
    assert resumed["steps"] == whole["steps"] == 30
    assert resumed["solves"]["graphs"] == whole["solves"]["graphs"] == 30 * config.graphs
    both = [list(read_rows(tmp_path / name / METRICS)) for name in ("whole", "cut")]
    for one, other in zip(*both, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
        assert one["rate"] == pytest.approx(other["rate"], rel=1e-6)
    state = torch.load(tmp_path / "cut" / CHECKPOINT, weights_only=True)
    assert isinstance(state["optimizer_states"][0]["param_groups"][0]["lr"], float)


@pytest.mark.cuda
@pytest.mark.parametrize("capture", [True, False])
def test_a_run_on_a_gpu_is_that_on_a_cpu(tmp_path: Path, capture: bool) -> None:
    config = replace(VALUES, steps=40, renew=9, validate_every=20, validation_graphs=4, capture=capture)
    for device in ("cpu", "cuda"):
        train(config, tmp_path / device, device=device)
    for one, other in zip(*(read_rows(tmp_path / device / METRICS) for device in ("cpu", "cuda")), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-2)
        assert one["rate"] == pytest.approx(other["rate"], rel=1e-6)


@pytest.mark.cuda
def test_what_does_not_converge_is_raised_at_the_next_look(tmp_path: Path, monkeypatch) -> None:
    """The first step of a captured run is eager and raises for itself, so that the tolerance tightens after it."""
    problem, model, optimizer = built(VALUES, "cuda")
    step = CapturedStep(model, problem.loss, optimizer)
    work = step._work
    hard = Auto(tol=1e-12, throw=True)

    def tightened(batch: GraphBatch) -> None:
        if torch.cuda.is_current_stream_capturing():
            model.solver = hard
        work(batch)

    monkeypatch.setattr(step, "_work", tightened)
    ready = step.prepare(problem.batch(TRAINING, 0, 4))
    for _ in range(3):
        step(ready)
    assert step.ledger.read().not_converged > 0
    impossible = replace(VALUES, steps=20, model_settings={**VALUES.model_settings, "solver": hard.encoded()})
    with pytest.raises(ConvergenceError):
        train(impossible, tmp_path / "run", device="cuda")
