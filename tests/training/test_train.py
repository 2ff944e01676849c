from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from convergent import InputError
from convergent.training.config import TrainConfig
from convergent.training.run import CHECKPOINT, METRICS, MODEL, RESULT, load_model, read_json, read_rows
from convergent.training.train import train

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
    from convergent.training.run import write_json

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
