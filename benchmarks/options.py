"""What the command line asks of every benchmark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Options:
    quick: bool = False
    seed: int = 0
    threads: int = 2
    say: Callable[[str], None] = lambda _: None  # progress
    keep: Callable[[Any], Any] = lambda _: (
        None
    )  # called with a report after each of its cases, so that an interrupt loses one at most
    device: str = "cpu"  # or cuda
    parts: tuple[str, ...] = ()  # of a benchmark that has parts; none: all of them

    def budget(self, seconds: float) -> float:
        """Seconds after which a slow peer is not repeated."""
        return 1.0 if self.quick else seconds
