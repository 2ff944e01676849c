from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from convergent import InputError
from convergent.storage.files import write_json
from convergent.storage.lock import LOCK, InUse, owned
from convergent.tasks.folder import write_folder
from convergent.training.config import TrainConfig
from convergent.training.keeper import Keeper
from convergent.training.problem import TEST, Problem
from convergent.training.run import CHECKPOINT, DATA, METRICS, MODEL, RESULT, VALIDATIONS, load_model, read_json, read_rows
from convergent.training.signals import Stopped
from convergent.training.train import train
from kills import FULL, Forks, contents

SMALL = TrainConfig(
    task="value-iteration",
    model="CGS(8)",
    steps=24,
    graphs=4,
    renew=5,
    validate_every=8,
    validation_graphs=4,
    checkpoint_every=6,
    task_settings={"states": [8, 12], "actions": [2, 4]},
    model_settings={"layers": 1, "hidden": [16], "decoder": [16], "dropout": 0.2},
)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / CHECKPOINT, weights_only=True)["state_dict"]


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_a_run_is_a_folder(tmp_path) -> None:
    result = train(SMALL, tmp_path / "run")
    assert result == read_json(tmp_path / "run" / RESULT)
    assert (result["steps"], result["solves"]["not_converged"]) == (24, 0)
    assert result["solves"]["graphs"] == 24 * 4
    assert set(result["validation"]) == {"mape", "policy_accuracy"}
    assert [row["step"] for row in read_rows(tmp_path / "run" / METRICS)] == [10, 20, 24]
    _, extra = load_model(tmp_path / "run" / MODEL)
    assert extra["step"] == result["best_step"]
    assert not [file for file in (tmp_path / "run").iterdir() if file.name.endswith(".part")]


def test_the_same_seed_gives_the_same_weights(tmp_path) -> None:
    train(SMALL, tmp_path / "a")
    train(SMALL, tmp_path / "b")
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))


SCRIPT = """
import sys
from convergent.training.config import TrainConfig
from convergent.training.run import read_json
from convergent.training.train import train
train(TrainConfig.from_json(read_json(__import__("pathlib").Path(sys.argv[1]))), sys.argv[2])
"""


@pytest.mark.parametrize("when", [7, 13, 20])
def test_killed_and_resumed_ends_with_the_same_bits(tmp_path, when) -> None:
    longer = TrainConfig(**{**SMALL.to_json(), "steps": 30})
    train(longer, tmp_path / "whole")
    write_json(tmp_path / "config.json", longer.to_json())
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / "config.json"), str(tmp_path / "cut")])
    checkpoint = tmp_path / "cut" / CHECKPOINT
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if checkpoint.exists() and torch.load(checkpoint, weights_only=True)["global_step"] >= when - 6:
            break
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    train(None, tmp_path / "cut", resume=True)
    assert same(weights(tmp_path / "cut"), weights(tmp_path / "whole"))
    assert list(read_rows(tmp_path / "cut" / METRICS)) == list(read_rows(tmp_path / "whole" / METRICS))


def test_pore_networks_have_scales(tmp_path) -> None:
    config = TrainConfig(task="pore-networks", model="CGS(8)", steps=6, graphs=2, validate_every=3, validation_graphs=2)
    result = train(config, tmp_path / "run")
    assert set(result["validation"]) == {"mse", "mean_error", "largest_error"}
    model, _ = load_model(tmp_path / "run" / MODEL)
    assert float(model.nodes.std.min()) > 0


def test_patience_stops_early(tmp_path) -> None:
    config = TrainConfig(**{**SMALL.to_json(), "steps": 200, "rate": 1e-9, "patience": 2, "validate_every": 2})
    assert train(config, tmp_path / "run")["steps"] < 50


def test_folders_are_not_overwritten(tmp_path) -> None:
    train(SMALL, tmp_path / "run")
    with pytest.raises(InputError, match="it holds a run"):
        train(SMALL, tmp_path / "run")
    assert train(None, tmp_path / "run", resume=True)["steps"] == 24  # a finished run is what it is
    with pytest.raises(InputError, match="no such file: "):
        train(None, tmp_path / "nothing", resume=True)
    with pytest.raises(InputError, match="config: expected the settings"):
        train(None, tmp_path / "new")


# --- what may not be lost, mixed or left ---


def cut_at(monkeypatch: pytest.MonkeyPatch, step: int, *signals: int) -> None:
    """Send signals to this process in the given step of the next training."""
    after_step = Keeper.on_train_batch_end

    def stop(self: Keeper, trainer: Any, *arguments: Any) -> None:
        if trainer.global_step == step:
            for each in signals:
                os.kill(os.getpid(), each)
        after_step(self, trainer, *arguments)

    monkeypatch.setattr(Keeper, "on_train_batch_end", stop)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_keeps_the_step_and_is_named(tmp_path, monkeypatch, signum) -> None:
    train(SMALL, tmp_path / "whole")
    before = signal.getsignal(signum)
    with monkeypatch.context() as patch:
        cut_at(patch, 10, signum)
        with pytest.raises(Stopped) as stop:
            train(SMALL, tmp_path / "cut")
    assert stop.value.signum == signum
    assert signal.getsignal(signum) == before
    assert torch.load(tmp_path / "cut" / CHECKPOINT, weights_only=True)["global_step"] == 10
    train(None, tmp_path / "cut", resume=True)
    assert same(weights(tmp_path / "cut"), weights(tmp_path / "whole"))


def test_a_second_signal_does_not_wait(tmp_path, monkeypatch) -> None:
    cut_at(monkeypatch, 10, signal.SIGTERM, signal.SIGTERM)
    with pytest.raises(Stopped):
        train(SMALL, tmp_path / "cut")
    assert torch.load(tmp_path / "cut" / CHECKPOINT, weights_only=True)["global_step"] == 6  # the last one that was due


def test_one_process_at_a_time(tmp_path) -> None:
    train(SMALL, tmp_path / "run")
    (tmp_path / "run" / RESULT).unlink()
    before = contents(tmp_path / "run")
    with owned(tmp_path / "run"):
        for config, resume in ((None, True), (SMALL, False)):
            with pytest.raises(InUse, match=rf"run: in use by another process \(pid {os.getpid()}\)"):
                train(config, tmp_path / "run", resume=resume)
    assert contents(tmp_path / "run") == before


@pytest.fixture
def networks(tmp_path) -> TrainConfig:
    """A task on networks in a folder."""
    problem = Problem.of(SMALL)
    write_folder(tmp_path / "networks", problem.batch(TEST, 0, 10), problem.schema)
    changes = {"task": "folder", "task_settings": {"path": str(tmp_path / "networks"), "targets": "value"}}
    return TrainConfig(**{**SMALL.to_json(), **changes})


def test_changed_data_is_not_resumed(networks, tmp_path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        cut_at(patch, 10, signal.SIGINT)
        with pytest.raises(Stopped):
            train(networks, tmp_path / "run")
    assert set(read_json(tmp_path / "run" / DATA)) == {"nodes.csv", "edges.csv"}
    table = tmp_path / "networks" / "nodes.csv"
    before = table.read_text()
    table.write_text(f"{before[:-2]}{(int(before[-2]) + 1) % 10}\n")  # of the same length
    with pytest.raises(InputError, match=r"run: nodes.csv has changed since this was started; restore the data, or"):
        train(None, tmp_path / "run", resume=True)
    table.write_text(before)
    assert train(None, tmp_path / "run", resume=True)["steps"] == 24


def test_settings_that_are_refused_leave_no_folder(tmp_path, monkeypatch) -> None:
    def fails(*_: object) -> None:
        raise InputError("weights: expected others")

    with pytest.raises(InputError, match="settings"):
        train(TrainConfig(**{**SMALL.to_json(), "model_settings": {"colour": 1}}), tmp_path / "a" / "run")
    with pytest.raises(ValueError, match="accelerator"):
        train(SMALL, tmp_path / "a" / "run", device="abacus")
    for first in ("training_step", "validate"):
        with monkeypatch.context() as patch:
            patch.setattr(f"convergent.training.module.Training.{first}", fails)
            with pytest.raises(InputError, match="weights"):
                train(TrainConfig(**{**SMALL.to_json(), "validate_every": 1}), tmp_path / "a" / "run")
        assert not (tmp_path / "a").exists(), first
    train(SMALL, tmp_path / "a" / "run")


def test_a_failure_later_on_keeps_the_run(tmp_path, monkeypatch) -> None:
    def fails(*_: object) -> None:
        raise InputError("weights: expected others")

    with monkeypatch.context() as patch:
        patch.setattr("convergent.training.module.Training.validate", fails)
        with pytest.raises(InputError, match="weights"):
            train(SMALL, tmp_path / "run")
    assert train(None, tmp_path / "run", resume=True)["steps"] == 24


def test_the_best_model_has_to_be_there(tmp_path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        cut_at(patch, 10, signal.SIGINT)
        with pytest.raises(Stopped):
            train(SMALL, tmp_path / "run")
    model = (tmp_path / "run" / MODEL).read_bytes()
    (tmp_path / "run" / MODEL).unlink()
    with pytest.raises(InputError, match=r"model.safetensors: no such file, but the best model so far \(step 8\)"):
        train(None, tmp_path / "run", resume=True)
    (tmp_path / "run" / MODEL).write_bytes(model)
    train(None, tmp_path / "run", resume=True)
    (tmp_path / "run" / MODEL).unlink()
    with pytest.raises(InputError, match=r"model.safetensors: no such file, but the run is finished"):
        train(None, tmp_path / "run", resume=True)


def test_nothing_passes_through_the_folder_for_temporary_files(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "there is none"))
    assert train(SMALL, tmp_path / "run")["steps"] == 24


# --- kills ---

RUN = """
from pathlib import Path
from convergent.training.config import TrainConfig
from convergent.training.train import train
out = Path({out!r})
resume = (out / "config.json").exists()
train(None if resume else TrainConfig.from_json({config!r}), out, resume=resume)
"""
SHORT = TrainConfig(**{**SMALL.to_json(), "steps": 11, "graphs": 2, "validate_every": 4, "validation_graphs": 2})


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as found:
        yield found


def run(config: TrainConfig, out: Path) -> str:
    return RUN.format(out=str(out), config=config.to_json())


def outcome(folder: Path) -> dict[str, Any]:
    """All that a run leaves, but for times."""
    kept = {name: (folder / name).read_text() if (folder / name).exists() else None for name in (METRICS, VALIDATIONS)}
    result = {name: value for name, value in read_json(folder / RESULT).items() if name not in ("seconds", "date")}
    model, extra = load_model(folder / MODEL)
    states = [{name: each.tolist() for name, each in state.items()} for state in (weights(folder), model.state_dict())]
    names = {path.name for path in folder.iterdir()} - {LOCK}  # of a process that was killed when all was done
    return {**kept, "result": result, "states": states, "extra": extra, "names": names}


@pytest.mark.parametrize("patience", [None, 1])
def test_killed_at_every_file_operation_and_resumed(forks, tmp_path, patience) -> None:
    """One that runs out of patience is killed in its end only: all before it is as in the other."""
    config = TrainConfig(**{**SHORT.to_json(), "patience": patience, "rate": 1e-12 if patience else 1e-3})
    whole = forks.run(run(config, tmp_path / "whole"), tmp_path / "whole")
    assert whole.code == 0, whole.complained
    wanted = outcome(tmp_path / "whole")
    assert wanted["result"]["steps"] == (8 if patience else 11)
    for number in range(whole.operations - 20 if patience else 1, whole.operations + 1):
        out = tmp_path / str(number)
        assert forks.run(run(config, out), out, at=number).code == -9
        resumed = forks.run(run(config, out), out)
        assert resumed.code == 0, (number, resumed.complained)
        assert outcome(out) == wanted, number


def test_a_full_disk_keeps_what_is_complete(forks, tmp_path) -> None:
    whole = forks.run(run(SHORT, tmp_path / "whole"), tmp_path / "whole")
    arguments = ["--set", "states=[8,12]", "--set", "actions=[2,4]", "--steps", 11, "--graphs", 2, "--validate-every", 4]
    arguments += ["--validation-graphs", 2, "--checkpoint-every", 6, "--model", "CGS(8)", "--json"]
    refused = 0
    for number in range(1, whole.operations + 1, 7):
        out = tmp_path / str(number)
        full = forks.run(["train", "value-iteration", *arguments, "--out", out], out, at=number, fault=FULL)
        if full.code == 0:
            continue
        refused += 1
        lines = full.complained.splitlines()
        assert (full.code, len(lines)) == (2, 1), full.complained
        assert lines[0].startswith("convergent: ")
        assert lines[0].endswith(": No space left on device")
        again = (
            ["train", "--resume", out] if (out / "config.json").exists() else ["train", "value-iteration", *arguments, "--out", out]
        )
        done = forks.run(again, out)
        assert done.code == 0, done.complained
        assert json.loads((out / RESULT).read_text())["steps"] == 11
    assert refused > 8


def test_two_runs_at_once(tmp_path) -> None:
    """The second of two processes is refused, and the first one does not notice."""
    write_json(tmp_path / "config.json", SMALL.to_json())
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "config.json"), str(tmp_path / "run")]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    complained = [process.communicate(timeout=240)[1] for process in processes]
    codes = sorted(process.returncode for process in processes)
    assert codes == [0, 1], complained
    assert any("in use by another process" in text or "it holds a run" in text for text in complained)
    assert [row["step"] for row in read_rows(tmp_path / "run" / METRICS)] == [10, 20, 24]
