"""Numbers as words to be read."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Context

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float, digits: int = 3, up: bool = False) -> str:
    """A number to be read: 0.0123, 4.5 × 10⁻⁷. A bound is rounded ``up``, so that it stays one."""
    value = float(value)
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "∞" if value > 0 else "−∞"
    short = Context(prec=digits, rounding=ROUND_CEILING if up else ROUND_HALF_EVEN).create_decimal_from_float(value).normalize()
    if short == 0:
        return "0"
    if -3 <= short.adjusted() < 6:
        return f"{short:,f}".replace("-", "−")
    mantissa = short.scaleb(-short.adjusted()).normalize()
    return f"{mantissa:f} × 10{str(short.adjusted()).translate(RAISED)}".replace("-", "−")


def fixed(value: float, digits: int) -> str:
    """A number with so many digits after the point: 0.980."""
    return f"{value:,.{digits}f}".replace("-", "−") if math.isfinite(value) else number(value)


def percent(share: float) -> str:
    """A share in per cent: 2.9 %."""
    return f"{fixed(100 * share, 1)} %" if math.isfinite(share) else number(share)


def duration(seconds: float) -> str:
    """A time with two digits: 2.4 ms, 1.2 s."""
    return f"{number(seconds, 2)} s" if seconds >= 1 else f"{number(1000 * seconds, 2)} ms"
