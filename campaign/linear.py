"""Exact fixed points of x = W x + b: dense elimination in float64, refined with residuals of 32 digits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from campaign.blocks import Inverse, Structure
from campaign.precise import EPS, Pair, add, sum_over, times

REFINEMENTS = 8
ENOUGH = 1e-28  # the last step relative to the answer: what follows is smaller still
MARGIN = 2.0  # on the error of a reference: its inverse is rounded


@dataclass(frozen=True)
class Reference:
    """A fixed point, and how far each of its numbers may be from the exact one."""

    value: Pair  # [N, H]
    error: Tensor  # [N, H]

    def distance(self, value: Tensor) -> Tensor:
        """|value - x*| up to ``error``."""
        return self.value.minus(value.double()).abs()


class Products:
    """b + W x - x in 32 digits, with the edges of each row side by side."""

    def __init__(self, structure: Structure, weight: Tensor, bias: Tensor):
        slots = structure.slots()  # [N, D]
        weight, self.bias = weight.double(), bias.double()
        self.weight = torch.cat([weight, weight.new_zeros(1, weight.shape[1])])[slots]  # [N, D, H]
        self.column = torch.cat([structure.column, structure.column.new_zeros(1)])[slots]

    def defect(self, x: Pair) -> Pair:
        image = add(sum_over(times(self.weight, x.at(self.column)), 1), Pair.of(self.bias))
        return add(image, Pair(-x.high, -x.low))

    def size(self, x: Tensor) -> Tensor:
        """|W| |x| + |b| + |x|: what rounding is measured by."""
        return (self.weight.abs() * x.abs()[self.column]).sum(1) + self.bias.abs() + x.abs()


def solve_linear(structure: Structure, weight: Tensor, bias: Tensor) -> Reference:
    """The fixed point of the numbers as they are stored."""
    inverse, products = Inverse(structure, weight), Products(structure, weight, bias)
    x = Pair.of(inverse(products.bias))
    for _ in range(REFINEMENTS):
        step = inverse(products.defect(x).high)
        x = add(x, Pair.of(step))
        if not bool((step.abs() > ENOUGH * x.high.abs()).any()):
            break
    left = products.defect(x).high.abs() + 8 * EPS * products.size(x.high)
    error = MARGIN * inverse(left, absolute=True)
    return Reference(x, torch.where(inverse.trusted(), error, torch.inf))
