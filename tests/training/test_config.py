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


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], r"config: expected an object with names and values, but got \[\]"),
        ({}, "task: expected a name, but got none"),
        ({"task": "x"}, "model: expected a name, but got none"),
        ({"task": "x", "model": "y", "colour": 3}, "config: expected some of task, model, .*, but got 'colour'"),
        ({"task": "x", "model": "y", "seed": "z"}, "seed: expected a whole number from 0 to 4294967295, but got 'z'"),
    ],
)
def test_other_things_are_refused(data, message) -> None:
    with pytest.raises(InputError, match=message):
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
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"rate": float("nan")}, "rate"),
        ({"steps": True}, "steps"),
        ({"steps": 2**63}, "steps"),
        ({"task_settings": []}, "task_settings"),
    ],
)
def test_bad_settings_are_named(change, message) -> None:
    with pytest.raises(InputError, match=f"{message}: expected"):
        TrainConfig(task="value-iteration", model="CGS(8)", **change)
