from __future__ import annotations

import json

import pytest

from convergent import InputError
from convergent.training.config import TrainConfig


def test_there_and_back() -> None:
    config = TrainConfig(task="value-iteration", model="CGS(8)", clip=1.0, task_settings={"states": [20, 30]})
    assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_runs_from_before_there_was_capture_can_be_read() -> None:
    config = TrainConfig(task="value-iteration", model="CGS(8)")
    old = {name: value for name, value in config.to_json().items() if name != "capture"}
    assert TrainConfig.from_json(old) == config


@pytest.mark.parametrize("data", [[], {}, {"task": "x"}, {"task": "x", "model": "y", "colour": 3}])
def test_other_things_are_refused(data) -> None:
    with pytest.raises(InputError, match="expected the settings of a training run"):
        TrainConfig.from_json(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps"),
        ({"schedule": "linear"}, "schedule"),
        ({"rate": 0}, "rate"),
        ({"clip": -1}, "clip"),
        ({"patience": 0}, "patience"),
        ({"capture": 1}, "capture"),
    ],
)
def test_bad_settings_are_named(change, message) -> None:
    with pytest.raises(InputError, match=f"{message}: expected"):
        TrainConfig(task="value-iteration", model="CGS(8)", **change)
