from __future__ import annotations

import threading

import pytest

from convergent.training.ahead import Ahead


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("convergent-ahead")]


def test_the_next_one_is_made_meanwhile_and_none_beyond_the_last() -> None:
    made: list[int] = []
    second = threading.Event()

    def make(number: int) -> int:
        made.append(number)
        if number == 3:
            second.set()
        return 10 * number

    ahead = Ahead(make, 4)
    assert ahead(2) == 20
    assert second.wait(10)  # nobody has asked for it
    assert [ahead(3), ahead(4)] == [30, 40]
    ahead.close()
    assert made == [2, 3, 4]
    assert threads() == []


def test_one_may_be_left_out() -> None:
    ahead = Ahead(lambda number: number, 9)
    assert [ahead(0), ahead(5), ahead(6)] == [0, 5, 6]
    ahead.close()
    ahead.close()  # again does no harm


def test_what_goes_wrong_in_the_thread_is_raised_where_it_is_asked_for() -> None:
    def make(number: int) -> int:
        if number == 1:
            raise ValueError("no such item")
        return number

    ahead = Ahead(make, 3)
    assert ahead(0) == 0
    with pytest.raises(ValueError, match="no such item"):
        ahead(1)
    ahead.close()
    assert threads() == []
