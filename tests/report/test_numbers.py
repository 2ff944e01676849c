from __future__ import annotations

import math

import numpy as np
import pytest

from convergent.report.numbers import duration, fixed, number, percent


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (0.0123456, "0.0123"),
        (-0.5, "−0.5"),
        (123456.0, "123,000"),
        (8.31e-7, "8.31 × 10⁻⁷"),
        (-1.0e-10, "−1 × 10⁻¹⁰"),
        (2.5e12, "2.5 × 10¹²"),
        (9.999e-8, "1 × 10⁻⁷"),
        (math.nan, "not a number"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (np.float32(0.25), "0.25"),
    ],
)
def test_numbers_are_readable(value, written) -> None:
    assert number(value) == written


def test_a_bound_is_rounded_up() -> None:
    assert number(8.3101e-7) == "8.31 × 10⁻⁷"
    assert number(8.3101e-7, up=True) == "8.32 × 10⁻⁷"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (fixed(0.98, 3), "0.980"),
        (fixed(-1.25, 1), "−1.2"),
        (fixed(math.nan, 3), "not a number"),
        (percent(0.0293), "2.9 %"),
        (percent(math.inf), "∞"),
        (duration(0.002434), "2.4 ms"),
        (duration(1.24), "1.2 s"),
    ],
)
def test_decimals_shares_and_times(written, expected) -> None:
    assert written == expected
