"""The loosest tolerance with which a solver reaches an error: so that speed is compared at the same accuracy.

Peers stop on the size of a step or of a residual in some norm of their own. They are given the benefit of knowing
beforehand which setting is just good enough.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

Answer = TypeVar("Answer")


class Calibrated(NamedTuple, Generic[Answer]):
    tol: float
    answer: Answer
    error: float
    seconds: float  # of the run with this tolerance
    reached: bool


def calibrate(
    run: Callable[[float], Answer],
    error: Callable[[Answer], float],
    wanted: float,
    start: float,
    tries: int = 6,
    cap: float = math.inf,
) -> Calibrated[Answer]:
    """Tightens the tolerance from ``start`` in proportion to what is missing, until the error is at most ``wanted``.

    Gives up after some tries or ``cap`` seconds, with the best it saw.
    """
    best: Calibrated[Answer] | None = None
    tol, spent = start, 0.0
    for _ in range(tries):
        begin = time.perf_counter()
        answer = run(tol)
        seconds = time.perf_counter() - begin
        spent += seconds
        found = error(answer)
        found = math.inf if math.isnan(found) else found
        if best is None or found < best.error:
            best = Calibrated(tol, answer, found, seconds, found <= wanted)
        if found <= wanted or spent > cap:
            break
        tol *= min(0.8 * wanted / found, 0.5) if found < math.inf else 0.1
    assert best is not None
    return best
