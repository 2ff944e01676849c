"""Time, taken so that noise hits everybody alike."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

OURS = "convergent"


REPEAT = 5e-2  # seconds: what is shorter is run in a loop, so that all repeats are equally warm


@dataclass(frozen=True)
class Candidate:
    """Something to time. ``prepare`` runs before every repeat, outside the clock; its result is what ``run`` gets."""

    run: Callable[[Any], Any]
    prepare: Callable[[], Any] | None = None
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


def clocked(candidate: Candidate, loops: int = 1) -> tuple[float, Any]:
    """Seconds per operation, and what came out."""
    prepared = candidate.prepare() if candidate.prepare else None
    start = time.perf_counter()
    for _ in range(loops):
        result = candidate.run(prepared)
    return (time.perf_counter() - start) / (candidate.count * loops), result


def at_rest(candidate: Candidate, device: str | torch.device) -> Candidate:
    """The same, from a device at rest to a device at rest. A call on the CPU is over when it returns, and stays as it is."""
    if torch.device(device).type != "cuda":
        return candidate

    def then_rest(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            result = work(*arguments)
            torch.cuda.synchronize(device)
            return result

        return run

    return Candidate(then_rest(candidate.run), candidate.prepare and then_rest(candidate.prepare), candidate.count)


def interleave(candidates: dict[str, Candidate], rounds: int, budget: float, ours: str = OURS) -> dict[str, Timing]:
    """Times ours before every peer, round by round: ours, peer, ours, another peer ... and again.

    A peer that has used its ``budget`` of seconds sits out the remaining rounds, but everybody runs once at
    least, after a first time that is not counted.
    """
    loops = {name: _loops(candidate) for name, candidate in candidates.items()}
    timings = {name: Timing() for name in candidates}
    spent = dict.fromkeys(candidates, 0.0)
    peers = [name for name in candidates if name != ours] or [ours]

    def take(name: str) -> None:
        seconds, _ = clocked(candidates[name], loops[name])
        timings[name].seconds.append(seconds)
        spent[name] += seconds * candidates[name].count * loops[name]

    for _ in range(rounds):
        playing = [name for name in peers if not timings[name].seconds or spent[name] < budget]
        gc.collect()
        for name in playing:
            if name != ours:
                take(ours)
            take(name)
    return timings


def _loops(candidate: Candidate) -> int:
    """The first run, which may compile, and a second one to see how long it takes."""
    first, _ = clocked(candidate)
    if first * candidate.count > 1 or candidate.prepare:
        return 1
    again, _ = clocked(candidate)
    return max(1, math.ceil(REPEAT / (again * candidate.count)))
