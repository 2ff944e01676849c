from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from convergent import InputError
from convergent.training.checkpoint import NEEDED, Checkpoints, read_checkpoint
from convergent.training.config import TrainConfig
from convergent.training.run import CHECKPOINT, RESULT
from convergent.training.train import train

SMALL = TrainConfig(
    task="value-iteration",
    model="CGS(8)",
    steps=6,
    graphs=2,
    validate_every=3,
    validation_graphs=2,
    task_settings={"states": [6, 8], "actions": [2, 3]},
    model_settings={"layers": 1, "hidden": [8], "decoder": [8]},
)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run that was killed between its last step and its result."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(SMALL, folder)
    (folder / RESULT).unlink()
    return folder


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("pwned",))


def refused(run: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> str:
    """The error of a run whose checkpoint is this."""
    before = (run / CHECKPOINT).read_bytes()
    monkeypatch.chdir(run.parent)
    (run / CHECKPOINT).write_bytes(content)
    try:
        with pytest.raises(InputError, match=r"checkpoint\.pt: expected a checkpoint, but") as found:
            train(None, run, resume=True)
    finally:
        (run / CHECKPOINT).write_bytes(before)
    assert not (run.parent / "pwned").exists()
    assert "\n" not in str(found.value)
    assert "delete it to start again from the first step" in str(found.value)
    return str(found.value)


def test_damaged_checkpoints_are_refused(run, monkeypatch, tmp_path) -> None:
    whole = (run / CHECKPOINT).read_bytes()
    assert "but it is empty" in refused(run, b"", monkeypatch)
    for content in (b"\0" * len(whole), whole[: len(whole) // 2], whole[:-1], b"text", pickle.dumps(Evil()), pickle.dumps([1])):
        refused(run, content, monkeypatch)
    torch.save({"a": Evil()}, tmp_path / "evil.pt")
    refused(run, (tmp_path / "evil.pt").read_bytes(), monkeypatch)


def test_checkpoints_of_something_else_are_refused(run, monkeypatch, tmp_path) -> None:
    found = read_checkpoint(run / CHECKPOINT)
    misfits = [("state_dict", {}), ("optimizer_states", [{}]), ("callbacks", {"keeper": {"best": 1.0}}), ("solves", {})]
    unusable = [("state_dict", []), ("optimizer_states", []), ("global_step", "3"), ("worst_bound", None), ("random", [1])]

    def saved(content: Any) -> bytes:
        torch.save(content, tmp_path / "other.pt")
        return (tmp_path / "other.pt").read_bytes()

    refused(run, saved([found]), monkeypatch)
    for name in NEEDED:
        refused(run, saved({key: value for key, value in found.items() if key != name}), monkeypatch)
    for state in ({}, {"keeper": {}}):
        assert "no state of its keeper" in refused(run, saved({**found, "callbacks": state}), monkeypatch)
    for name, value in misfits:
        assert "it does not fit this run" in refused(run, saved({**found, name: value}), monkeypatch), name
    for name, value in unusable:
        assert f"its {name} cannot be used" in refused(run, saved({**found, name: value}), monkeypatch)


def test_without_its_checkpoint_a_run_starts_again(run) -> None:
    (run / CHECKPOINT).unlink()
    assert train(None, run, resume=True)["steps"] == 6


def test_it_is_written_beside_its_place(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "there is none"))
    checkpoints, path = Checkpoints(), tmp_path / "a.pt"
    whole = {name: [{}] if kind is list else torch.ones(2) if name == "random" else kind() for name, kind in NEEDED.items()}
    whole["callbacks"] = {"keeper": {"best": 1.0}}
    checkpoints.save_checkpoint(whole, str(path))
    assert list(tmp_path.iterdir()) == [path]
    assert torch.equal(checkpoints.load_checkpoint(path)["random"], torch.ones(2))
    with pytest.raises(TypeError):
        checkpoints.save_checkpoint({"a": (each for each in ())}, path)  # what cannot be saved leaves the old one
    assert read_checkpoint(path).keys() == whole.keys()
    checkpoints.remove_checkpoint(path)
    with pytest.raises(InputError, match="no such file"):
        read_checkpoint(path)
