from __future__ import annotations

import threading

import pytest

from convergent.training.board import Board, open_board


def test_a_log_that_goes_on_forgets_later_steps(tmp_path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    threads = threading.active_count()
    first = Board(tmp_path / "log", 0)
    for step in (1, 2, 3):
        first.add({"metrics/loss": step / 4, "metrics/rate": 0.5}, step)
    second = Board(tmp_path / "log", 2)  # resumed from step 2
    second.add({"metrics/loss": 9.0}, 3)
    assert first.path != second.path
    found = EventAccumulator(str(tmp_path / "log")).Reload()
    assert [(event.step, event.value) for event in found.Scalars("metrics/loss")] == [(1, 0.25), (2, 0.5), (3, 9.0)]
    assert [event.step for event in found.Scalars("metrics/rate")] == [1, 2]
    assert threading.active_count() == threads


def test_a_log_that_was_cut_off_is_read_up_to_there(tmp_path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = Board(tmp_path, 0)
    for step in (1, 2):
        board.add({"loss": 0.5}, step)
    board.path.write_bytes(board.path.read_bytes()[:-5])
    assert [event.step for event in EventAccumulator(str(tmp_path)).Reload().Scalars("loss")] == [1]


def test_tensorboard_may_be_missing(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert open_board(tmp_path / "log", 0) is None
    assert not list(tmp_path.iterdir())
