"""Table 1, its ablations and what goes with them, at a budget of seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from convergent.experiments import runner
from convergent.experiments.experiment import Experiment
from convergent.experiments.printed import GRID, VALUE_ITERATION
from convergent.experiments.runner import Plan
from convergent.experiments.value_iteration import (
    Example,
    FixedBias,
    Gamma,
    Layers,
    NonLinear,
    SampleEfficiency,
    Table,
    ValueIteration,
    pool,
)
from convergent.tasks.value_iteration import ValueIteration as Task
from convergent.training.config import TrainConfig
from convergent.training.problem import TRAINING, VALIDATION, Problem
from convergent.training.run import read_json

TABLES = (ValueIteration, Layers, FixedBias, Gamma, NonLinear)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps on two graphs."""
    monkeypatch.setattr(Table, "columns", GRID[:1])
    monkeypatch.setattr(Table, "graphs", 3)

    def config(self: Table, model: str, seed: int, **settings: Any) -> TrainConfig:
        return TrainConfig(
            task="value-iteration", model=model, seed=seed, model_settings=settings, steps=2, graphs=2, validation_graphs=2
        )

    monkeypatch.setattr(Table, "config", config)


@pytest.mark.parametrize("kind", TABLES)
def test_full_tables_have_the_printed_rows(kind: type[Table]) -> None:
    printed, full = VALUE_ITERATION[kind.name], kind()
    assert set(printed) <= set(full.models)
    assert full.columns == GRID
    assert all(len(row["mape"]) == len(GRID) for row in printed.values())
    config = full.job(next(iter(full.models)), 0).settings["config"]
    assert (config["steps"], config["graphs"]) == (5000, 64)


def test_rows_that_tables_share_are_trained_once() -> None:
    first = {job.key for job in ValueIteration().jobs()}
    assert FixedBias().job("CGS(32)", 2).key in first
    assert NonLinear().job("CGS(64)", 0).key in first
    assert Gamma().job("gamma=0.5", 0).key in first
    assert Layers().job("4-CGS(16)", 0).key in first
    assert Gamma().job("gamma=0.7", 0).key not in first
    assert Example().job().key in first


def test_table_one_and_its_example(tiny: None, tmp_path: Path) -> None:
    paths = runner.run([ValueIteration(quick=True), Example(quick=True)], Plan(tmp_path))
    reports = {report["experiment"]: report for report in map(read_json, paths)}
    table = reports["value-iteration"]["table"]
    assert set(table["rows"]) == {"SSE", "SSE, unbounded", "IGNN", "CGS(16)", "CGS(32)", "CGS(64)", "immediate reward"}
    assert table["rows"]["CGS(64)"]["parameters"] == 280_069
    assert 0.3 < table["rows"]["immediate reward"]["policy_accuracy"][0][0] < 1
    graph = reports["value-iteration-example"]["table"]["graphs"][0]
    assert len(graph["predicted"]) == len(graph["true"]) == len(graph["positions"]) == 20
    assert {len(edge) for edge in graph["edges"]} == {2}


def test_an_ablation(tiny: None, tmp_path: Path) -> None:
    (path,) = runner.run([Gamma(quick=True)], Plan(tmp_path))
    report = read_json(path)
    assert set(report["table"]["rows"]) == {f"gamma={gamma}" for gamma in (0.3, 0.5, 0.7, 0.9)}
    assert all(isinstance(statement["holds"], bool) for statement in report["statements"])


def test_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SampleEfficiency, "sizes", (3,))
    (path,) = runner.run([SampleEfficiency(quick=True)], Plan(tmp_path))
    assert read_json(path)["table"]["sizes"] == [3]


def test_a_pool_is_all_there_is_to_train_on() -> None:
    config = TrainConfig(task="value-iteration", model="CGS(8)", task_settings={"pool": 3, "states": [6, 9], "actions": [2, 3]})
    problem = Problem.of(config)
    seen = {tuple(part.y.flatten().tolist()) for number in range(8) for part in problem.batch(TRAINING, number, 2).split()}
    assert len(seen) == 3
    held_out = {tuple(part.y.flatten().tolist()) for part in problem.batch(VALIDATION, 0, 8).split()}
    assert len(held_out) == 8
    assert not held_out & seen
    with pytest.raises(Exception, match="pool: expected None or a whole number, 1 or more"):
        Task(pool=0)


def test_pooled_moments_are_those_of_all_numbers() -> None:
    assert pool([[1.0, 0.0], [3.0, 0.0]]) == [2.0, 1.0]
    assert pool([[2.0, 0.5]]) == [2.0, 0.5]


def test_every_experiment_has_a_name_and_a_title() -> None:
    assert all(kind.name == name and kind.title for name, kind in Experiment.kinds.items())
