"""Threads that each have a server of forks and take numbers until the time is over."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from campaign.loaded import loaded
from campaign.outcome import Outcome
from campaign.pool import default_workers


def served(task: Callable[[int, Any], Outcome], workers: int | None, seconds: float, first: int) -> Iterator[tuple[int, Outcome]]:
    """``task(number, forks)`` for numbers from ``first`` on; at least one, however short the time."""
    until, numbers, found = time.monotonic() + seconds, iter(range(first, 1 << 62)), queue.Queue[Any]()
    stop, lock = threading.Event(), threading.Lock()

    def work() -> None:
        try:
            with loaded("tests/kills.py").Forks() as forks:
                while not stop.is_set():
                    with lock:
                        number = next(numbers)
                        if number > first and time.monotonic() > until:
                            break
                    found.put((number, task(number, forks)))
        except BaseException as error:
            found.put(error)
        finally:
            found.put(None)

    threads = [threading.Thread(target=work) for _ in range(workers or default_workers("cpu"))]
    for thread in threads:
        thread.start()
    running = len(threads)
    try:
        while running:
            each = found.get()
            if isinstance(each, BaseException):
                raise each
            running -= each is None
            if each is not None:
                yield each
    finally:
        stop.set()
        for thread in threads:
            thread.join()
