"""The figures on pore networks, at a budget of seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from convergent.experiments import runner
from convergent.experiments.pores import LINE, PoreNetworks, Pores, TrainingCurves
from convergent.experiments.runner import Plan
from convergent.training.config import TrainConfig
from convergent.training.models import MODELS, PORES
from convergent.training.run import read_json


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four steps on two small networks."""
    monkeypatch.setattr(Pores, "sizes", (60, 800))
    monkeypatch.setattr(Pores, "networks", 2)

    def config(self: Pores, model: str, seed: int) -> TrainConfig:
        settings = {"pores": [50, 60]}
        few = {"steps": 4, "graphs": 2, "validate_every": 2, "validation_graphs": 2}
        return TrainConfig(task=PORES, model=model, seed=seed, task_settings=settings, **few)

    monkeypatch.setattr(Pores, "config", config)


def test_the_full_budget_is_the_papers() -> None:
    full = PoreNetworks()
    assert set(full.models) == {model.name for model in MODELS if model.task == PORES}
    assert full.sizes == tuple(range(100, 1001, 100))
    settings = full.job("CGS(8)", 4).settings
    assert (settings["config"]["steps"], settings["config"]["graphs"], settings["graphs"]) == (1000, 32, 500)
    assert settings["config"]["task_settings"] == {"pores": [50, 200]}


def test_curves_take_no_run_of_their_own() -> None:
    for quick in (True, False):
        shared = {job.key for job in PoreNetworks(quick).jobs()}
        assert {job.key for job in TrainingCurves(quick).jobs()} < shared


def test_both_figures_and_the_curves(tiny: None, tmp_path: Path) -> None:
    paths = runner.run([PoreNetworks(quick=True), TrainingCurves(quick=True)], Plan(tmp_path))
    reports = {report["experiment"]: report for report in map(read_json, paths)}
    table, models = reports["pore-networks"]["table"], PoreNetworks(quick=True).models
    assert set(table["rows"]) == {*models, LINE}
    assert all(len(row["mse"]) == 2 and all(mean > 0 for mean, _ in row["mse"]) for row in table["rows"].values())
    assert set(table["rows"]["CGS(8)"]["seeds"]) == {"0", "1"}
    assert table["rows"][LINE]["mse"][1][0] < 5e-3  # pressure is nearly linear
    curves = reports["training-curves"]["table"]["rows"]
    assert set(curves) == set(models)
    assert all(row["steps"] == [2, 4] and len(row["mean"]) == len(row["std"]) == 2 for row in curves.values())
    for report in reports.values():
        assert report["seeds"] == [0, 1]
        assert all(isinstance(statement["holds"], bool) and statement["evidence"] for statement in report["statements"])
