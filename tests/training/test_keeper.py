from __future__ import annotations

import sys

import pytest

from convergent.training.config import TrainConfig
from convergent.training.provenance import provenance
from convergent.training.run import TENSORBOARD, VALIDATIONS, read_rows
from convergent.training.train import train

SMALL = TrainConfig(
    task="value-iteration",
    model="CGS(8)",
    steps=12,
    graphs=2,
    validate_every=5,
    validation_graphs=2,
    task_settings={"states": [8, 12], "actions": [2, 4]},
    model_settings={"layers": 1, "hidden": [8], "decoder": [8]},
)


def test_validations_are_a_table_and_on_tensorboard(tmp_path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = train(SMALL, tmp_path / "run")
    rows = list(read_rows(tmp_path / "run" / VALIDATIONS))
    assert [row["step"] for row in rows] == [5, 10, 12]
    assert rows[-1]["mape"] == pytest.approx(result["validation"]["mape"])
    assert min(row["mape"] for row in rows) == result["best"]
    board = EventAccumulator(str(tmp_path / "run" / TENSORBOARD)).Reload()
    assert [event.step for event in board.Scalars("validation/mape")] == [5, 10, 12]
    assert board.Scalars("validation/mape")[-1].value == pytest.approx(rows[-1]["mape"], rel=1e-6)
    assert [event.step for event in board.Scalars("metrics/loss")] == [10, 12]


def test_tensorboard_may_be_missing(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    train(SMALL, tmp_path / "run")
    assert not (tmp_path / "run" / TENSORBOARD).exists()
    assert (tmp_path / "run" / VALIDATIONS).exists()


def test_a_tree_without_its_history_is_told_its_commit(monkeypatch) -> None:
    monkeypatch.setenv("COMMIT", "2a610f2")
    assert provenance()["commit"] == "2a610f2"


def test_provenance_names_versions_and_machine() -> None:
    found = provenance()
    assert found["versions"]["python"] == sys.version.split()[0]
    assert found["machine"]["threads"] >= 1
