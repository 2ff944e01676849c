"""The next item is made while the present one is in use."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Ahead(Generic[Item]):
    """Items by number, asked for in rising order; a thread makes the following one. What goes wrong there is raised here.

    Args:
        make: an item from its number, and from nothing else.
        last: the number after which there is none.
    """

    def __init__(self, make: Callable[[int], Item], last: int):
        self.make, self.last = make, last
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="convergent-ahead")
        self.waiting: tuple[int, Future[Item]] | None = None

    def __call__(self, number: int) -> Item:
        if self.waiting is None or self.waiting[0] != number:
            self.waiting = (number, self.pool.submit(self.make, number))
        item = self.waiting[1].result()
        self.waiting = (number + 1, self.pool.submit(self.make, number + 1)) if number < self.last else None
        return item

    def close(self) -> None:
        """Ends the thread, once it has finished what it is at."""
        self.pool.shutdown(wait=True, cancel_futures=True)
