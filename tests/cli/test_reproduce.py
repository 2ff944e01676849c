"""The command ``reproduce``."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from convergent import InputError
from convergent.cli import reproduce
from convergent.cli.app import app
from convergent.experiments.printed import GRID
from convergent.experiments.value_iteration import Gamma, Table
from convergent.training.config import TrainConfig
from convergent.training.run import read_json


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """One model, two steps."""
    config = TrainConfig(task="value-iteration", model="CGS(8)", steps=2, graphs=2, validation_graphs=2)
    monkeypatch.setattr(Table, "columns", GRID[:1])
    monkeypatch.setattr(Table, "graphs", 2)
    monkeypatch.setattr(Table, "config", lambda *_, **__: config)
    monkeypatch.setattr(Gamma, "statements", lambda *_: [])


def test_without_a_name_it_says_which_there_are() -> None:
    result = CliRunner().invoke(app, ["reproduce"])
    assert result.exit_code == 0
    for name in ("value-iteration", "ablation-gamma", "pore-networks", "classification", "runtime", "complexity"):
        assert name in result.output


def test_a_table_end_to_end_and_not_twice(tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["reproduce", "ablation-gamma", "--quick", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert set(read_json(tmp_path / "ablation-gamma.json")["table"]["rows"]) == set(Gamma.models)
    monkeypatch.setattr("convergent.experiments.job.Job.run", lambda *_: pytest.fail("it was run again"))
    assert CliRunner().invoke(app, arguments).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table-7"], "name: expected one of .*, but got 'table-7'"),
        (["value-iteration", "--device", "abacus"], "device: expected"),
        (["classification", "--quick"], "classification: cannot be run here: .* no folder was named"),
        (["classification", "--quick", "--data-root", "tests"], "classification: cannot be run here: .* tests lacks them"),
        (["complexity", "--quick", "--data-root", "nowhere"], "--data-root: expected a folder, but got nowhere"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # no data sets of the user's
    result = CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(tmp_path)])
    assert isinstance(result.exception, InputError), result.output
    with pytest.raises(InputError, match=message):
        raise result.exception
    assert "\n" not in str(result.exception)


def test_every_module_of_experiments_is_known() -> None:
    assert len(reproduce.known()) >= 12
