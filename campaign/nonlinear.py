"""Fixed points of non-linear maps, by Newton's method with residuals in long double, each with a bound of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from campaign.blocks import Inverse, Structure
from campaign.extended import LONG, LONG_EPS, SLOPES, Long, slope
from campaign.linear import MARGIN, Reference
from campaign.precise import Pair

NEWTON = 25
ROUNDING = 8 * LONG_EPS


def _long(values: Tensor) -> Long:
    return values.detach().double().cpu().numpy().astype(np.longdouble)


class _Slotted:
    def __init__(self, structure: Structure, per_edge: Tensor, bias: Tensor):
        self.structure, self.place = structure, bias.device
        self.row, self.column = structure.row.cpu().numpy(), structure.column.cpu().numpy()
        self.slots = structure.slots().cpu().numpy()  # [N, D]
        self.ends = np.append(self.column, 0)[self.slots]
        self.per_edge, self.bias = _long(per_edge), _long(bias)

    def slotted(self, values: Long, fill: float) -> Long:
        padding = np.full((1, values.shape[1]), fill, dtype=values.dtype)
        return np.concatenate([values, padding])[self.slots]  # [N, D, H]

    def tensor(self, values: Long) -> Tensor:
        return torch.from_numpy(values.astype(np.float64)).to(self.place)


class Activated(_Slotted):
    """phi(W x + b)."""

    def __init__(self, structure: Structure, weight: Tensor, bias: Tensor, activation: str):
        super().__init__(structure, weight, bias)
        self.activation = activation
        self.weight = self.slotted(self.per_edge, 0)

    def inner(self, x: Long) -> Long:
        return (self.weight * x[self.ends]).sum(1) + self.bias

    def __call__(self, x: Long) -> Long:
        return LONG[self.activation](self.inner(x))

    def slopes(self, x: Long) -> Tensor:
        at = slope(self.activation, self.tensor(self.inner(x)))
        return self.tensor(self.per_edge) * at[self.structure.row]

    def dominating(self) -> Tensor:
        return SLOPES[self.activation] * self.tensor(np.abs(self.per_edge))

    def rounding(self, x: Long) -> Long:
        sizes = (np.abs(self.weight) * np.abs(x)[self.ends]).sum(1) + np.abs(self.bias)
        return ROUNDING * (self.slots.shape[1] + 2) * (sizes + np.abs(x))


class MaxPlus(_Slotted):
    """max(b_i, max over edges c_e + g x_j)."""

    def __init__(self, structure: Structure, reward: Tensor, bias: Tensor, discount: float):
        super().__init__(structure, reward, bias)
        self.discount = np.longdouble(discount)
        self.reward = self.slotted(self.per_edge, -np.inf)

    def offers(self, x: Long) -> Long:
        return self.reward + self.discount * x[self.ends]

    def __call__(self, x: Long) -> Long:
        best: Long = np.maximum(self.offers(x).max(1, initial=-np.inf), self.bias)
        return best

    def slopes(self, x: Long) -> Tensor:
        offers = self.offers(x)
        entries = np.zeros((len(self.row) + 1, self.bias.shape[1]))
        if offers.shape[1]:
            best = offers.argmax(1)  # [N, H]
            moves = offers.max(1) > self.bias
            edge = np.take_along_axis(self.slots, best, 1)
            node, head = np.nonzero(moves)
            entries[edge[node, head], head] = float(self.discount)
        return torch.from_numpy(entries[:-1]).to(self.place)

    def rounding(self, x: Long) -> Long:
        found: Long = ROUNDING * (np.abs(x) + np.abs(self.bias) + np.abs(self(x)))
        return found


@dataclass
class _Newton:
    """Steps that are only taken where they bring a graph and head closer; the others take a plain one."""

    image: Activated | MaxPlus

    def lanes(self, values: Long) -> Long:
        first = np.concatenate([[0], np.cumsum(self.image.structure.sizes.cpu().numpy())])
        worst = np.zeros((len(first) - 1, values.shape[1]), dtype=values.dtype)
        for graph in np.flatnonzero(np.diff(first)):
            worst[graph] = np.abs(values[first[graph] : first[graph + 1]]).max(0)
        return worst

    def solve(self, x: Long) -> Long:
        graph = self.image.structure.graph_of.cpu().numpy()
        defect = self.image(x) - x
        length = self.lanes(defect)
        for _ in range(NEWTON):
            if not (length > self.lanes(self.image.rounding(x))).any():
                break
            step = Inverse(self.image.structure, self.image.slopes(x))(self.image.tensor(defect))
            moved = x + step.cpu().numpy().astype(np.longdouble)
            closer = self.lanes(self.image(moved) - moved) < length
            x = np.where(closer[graph], moved, x + defect)
            defect = self.image(x) - x
            before, length = length, self.lanes(defect)
            if not (length < 0.9 * before).any():
                break
        return x


def solve_nonlinear(image: Activated | MaxPlus, start: Tensor) -> Reference:
    """The fixed point, looked for from ``start``: where it was begun does not count in the bound."""
    first = _long(torch.where(torch.isfinite(start), start, 0))
    with np.errstate(all="ignore"):
        x = _Newton(image).solve(first)
        left = image.tensor(np.abs(image(x) - x) + image.rounding(x))
    if isinstance(image, MaxPlus):
        structure = image.structure
        left = structure.norm(left, "max")[structure.graph_of] / (1 - float(image.discount))
    else:
        left = Inverse(image.structure, image.dominating())(left, absolute=True)
    high = image.tensor(x)
    low = image.tensor(x - high.cpu().numpy().astype(np.longdouble))
    return Reference(Pair(high, low), MARGIN * left)
