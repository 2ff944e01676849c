"""Sums and products of float64 carried to about 32 digits: a number is an unevaluated sum of two (Dekker 1971; Knuth)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

SPLIT = 2.0**27 + 1
EPS = 2.0**-100  # a safe relative error of one operation below


class Pair(NamedTuple):
    """high + low, where low is at most half a unit in the last place of high."""

    high: Tensor
    low: Tensor

    @staticmethod
    def of(values: Tensor) -> Pair:
        return Pair(values.double(), torch.zeros_like(values, dtype=torch.float64))

    def at(self, index: Tensor) -> Pair:
        return Pair(self.high[index], self.low[index])

    def minus(self, values: Tensor) -> Tensor:
        """The difference to float64 numbers, rounded to float64."""
        return (self.high - values) + self.low


def two_sum(a: Tensor, b: Tensor) -> Pair:
    total = a + b
    of_b = total - a
    return Pair(total, (a - (total - of_b)) + (b - of_b))


def _split(a: Tensor) -> tuple[Tensor, Tensor]:
    wide = SPLIT * a
    high = wide - (wide - a)
    return high, a - high


def two_product(a: Tensor, b: Tensor) -> Pair:
    total = a * b
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    error = ((a_high * b_high - total) + a_high * b_low + a_low * b_high) + a_low * b_low
    return Pair(total, error)


def _renormalised(high: Tensor, low: Tensor) -> Pair:
    total = high + low
    return Pair(total, low - (total - high))


def add(a: Pair, b: Pair) -> Pair:
    high, error = two_sum(a.high, b.high)
    low, rest = two_sum(a.low, b.low)
    high, error = _renormalised(high, error + low)
    return _renormalised(high, error + rest)


def times(a: Tensor, b: Pair) -> Pair:
    high, error = two_product(a, b.high)
    return _renormalised(high, error + a * b.low)


def sum_over(terms: Pair, dim: int) -> Pair:
    """The sum along a dimension, by halves."""
    high, low = terms.high.movedim(dim, 0), terms.low.movedim(dim, 0)
    if not len(high):
        zero = high.new_zeros(high.shape[1:])
        return Pair(zero, zero)
    while len(high) > 1:
        half = (len(high) + 1) // 2
        rest = len(high) - half
        front = add(Pair(high[:rest], low[:rest]), Pair(high[half:], low[half:]))
        high, low = torch.cat([front.high, high[rest:half]]), torch.cat([front.low, low[rest:half]])
    return Pair(high[0], low[0])
