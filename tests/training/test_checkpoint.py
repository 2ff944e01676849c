from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from convergent import InputError
from convergent.settings import settings_of
from convergent.training.checkpoint import Checkpoint, Checkpoints, read_checkpoint, require_fit
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


STATE = {"best": float("inf"), "best_step": -1, "since_best": 0, "validation": {}, "seconds": 1.0}
GOOD = {
    "state_dict": {"a": torch.arange(10.0)},
    "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2)}}, "param_groups": []}],
    "lr_schedulers": [{"last_epoch": 3}],
    "loops": {},
    "callbacks": {"keeper": STATE},
    "global_step": 3,
    "solves": {"graphs": 1},
    "worst_bound": 1e-7,
    "random": torch.get_rng_state(),
    "epoch": 0,
}


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
    misfits = [("state_dict", {}), ("optimizer_states", [{}]), ("solves", {})]
    unusable = [("state_dict", []), ("optimizer_states", []), ("global_step", "3"), ("worst_bound", None), ("random", [1])]

    def saved(content: Any) -> bytes:
        torch.save(content, tmp_path / "other.pt")
        return (tmp_path / "other.pt").read_bytes()

    refused(run, saved([found]), monkeypatch)
    for name in settings_of(Checkpoint):
        refused(run, saved({key: value for key, value in found.items() if key != name}), monkeypatch)
    for state in ({}, {"keeper": {}}):
        assert "keeper" in refused(run, saved({**found, "callbacks": state}), monkeypatch)
    for name, value in misfits:
        assert "it does not fit this run" in refused(run, saved({**found, name: value}), monkeypatch), name
    for name, value in unusable:
        assert f"it is not as it was written ({name}: expected" in refused(run, saved({**found, name: value}), monkeypatch)


def test_without_its_checkpoint_a_run_starts_again(run) -> None:
    (run / CHECKPOINT).unlink()
    assert train(None, run, resume=True)["steps"] == 6


def test_it_is_written_beside_its_place(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "there is none"))
    checkpoints, path = Checkpoints(), tmp_path / "a.pt"
    whole = {**GOOD, "random": torch.ones(2)}
    checkpoints.save_checkpoint(whole, str(path))
    assert list(tmp_path.iterdir()) == [path]
    assert torch.equal(checkpoints.load_checkpoint(path)["random"], torch.ones(2))
    with pytest.raises(TypeError):
        checkpoints.save_checkpoint({"a": (each for each in ())}, path)  # what cannot be saved leaves the old one
    assert read_checkpoint(path).keys() == whole.keys()
    checkpoints.remove_checkpoint(path)
    with pytest.raises(InputError, match="no such file"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    "change",
    [
        {"state_dict": []},
        {"state_dict": {"a": 5}},
        {"optimizer_states": []},
        {"lr_schedulers": [{}]},
        {"callbacks": {}},
        {"callbacks": {"keeper": {**STATE, "best": "x"}}},
        {"callbacks": {"keeper": {name: STATE[name] for name in ("best", "seconds")}}},
        {"global_step": -1},
        {"random": 5},
    ],
    ids=str,
)
def test_what_is_not_as_it_was_written(tmp_path, change) -> None:
    torch.save({**GOOD, **change}, tmp_path / "checkpoint.pt")
    with pytest.raises(InputError, match=r"checkpoint\.pt: expected a checkpoint, but it is not as it was written .*delete it"):
        read_checkpoint(tmp_path / "checkpoint.pt")


def test_a_flipped_bit_is_found(tmp_path) -> None:
    torch.save(GOOD, tmp_path / "checkpoint.pt")
    content = bytearray((tmp_path / "checkpoint.pt").read_bytes())
    place = content.index(torch.arange(10.0).numpy().tobytes())
    content[place + 7] ^= 1
    (tmp_path / "checkpoint.pt").write_bytes(bytes(content))
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["state_dict"]["a"][1] != 1  # torch does not notice
    with pytest.raises(InputError, match="it could not be read; restore it, or delete it"):
        read_checkpoint(tmp_path / "checkpoint.pt")


def test_the_state_of_an_optimiser_for_other_weights() -> None:
    require_fit(GOOD, [torch.ones(2)])
    with pytest.raises(ValueError, match=r"exp_avg of parameter 0: expected \[3\], but got \[2\]"):
        require_fit(GOOD, [torch.ones(3)])
