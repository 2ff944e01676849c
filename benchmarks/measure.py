"""Time, taken so that noise hits everybody alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

OURS = "convergent"


@dataclass(frozen=True)
class Candidate:
    """Something to time. ``prepare`` runs before every repeat, outside the clock; its result is what ``run`` gets."""

    run: Callable[[Any], Any]
    prepare: Callable[[], Any] = lambda: None
    count: int = 1  # how many operations one run is


@dataclass
class Timing:
    """Seconds per operation, one per repeat."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def minimum(self) -> float:
        return min(self.seconds)

    def to_json(self) -> dict[str, Any]:
        return {"median": self.median, "min": self.minimum, "repeats": len(self.seconds), "seconds": self.seconds}


def clocked(candidate: Candidate) -> tuple[float, Any]:
    """Seconds per operation, and what came out."""
    prepared = candidate.prepare()
    start = time.perf_counter()
    result = candidate.run(prepared)
    return (time.perf_counter() - start) / candidate.count, result


def interleave(
    candidates: dict[str, Candidate], rounds: int, budget: float, warm: bool = True, ours: str = OURS
) -> dict[str, Timing]:
    """Times ours before every peer, round by round: ours, peer, ours, another peer ... and again.

    A peer that has used its ``budget`` of seconds sits out the remaining rounds, but everybody runs at least once.
    """
    timings = {name: Timing() for name in candidates}
    spent = dict.fromkeys(candidates, 0.0)
    peers = [name for name in candidates if name != ours] or [ours]
    if warm:
        for candidate in candidates.values():
            clocked(candidate)

    def take(name: str) -> None:
        seconds, _ = clocked(candidates[name])
        timings[name].seconds.append(seconds)
        spent[name] += seconds * candidates[name].count

    for _ in range(rounds):
        playing = [name for name in peers if not timings[name].seconds or spent[name] < budget]
        for name in playing:
            gc.collect()
            if name != ours:
                take(ours)
            take(name)
    return timings
