"""The contents of a page: plain numbers and words, independent of models and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Curve:
    """Something that was logged while training, such as the loss."""

    steps: Sequence[float]
    values: Sequence[float]
    name: str


@dataclass(frozen=True)
class Score:
    """How well one way of predicting does on the networks of one size: means over these networks.

    R² compares the squared error in a network with the variance around that network's own mean: 1 is perfect, 0 is as good as
    the mean, below 0 is worse.
    """

    r2: float
    inner_r2: float  # over the pores whose pressure is not given
    mean_error: float  # absolute, as a fraction of the inlet pressure
    mse: float


@dataclass(frozen=True)
class SizeRow:
    """The test on networks of one size."""

    nodes: int
    networks: int
    model: Score
    line: Score  # the pressure falls linearly from inlet to outlet
    mean: Score  # every pore has the mean pressure of its network
    wins: int  # networks on which the model has a smaller squared error than the straight line
    largest_error: float
    iterations: int
    worst_bound: float  # upper bound on the distance between a computed fixed point and the exact one, over these networks
    converged: int  # networks, of ``networks``
    seconds: float  # time of the model for one network, median
    exact_seconds: float  # time of the exact solve for one network, median


@dataclass(frozen=True)
class Points:
    """Pairs of an exact and a predicted value, shown in a panel of their own."""

    name: str
    exact: Sequence[float]
    predicted: Sequence[float]
    r2: float | None = None  # shown in the panel's title


@dataclass(frozen=True)
class Network:
    """A network with positions in space."""

    position: ArrayLike  # [N, 3]
    ends: ArrayLike  # [2, E], every throat once
    exact: ArrayLike  # [N]
    predicted: ArrayLike  # [N]


@dataclass(frozen=True)
class DemoPage:
    """A page, from top to bottom."""

    title: str
    summary: str
    headlines: Sequence[tuple[str, str]]  # label, value
    curves: Sequence[Curve]
    points: Sequence[Points]
    rows: Sequence[SizeRow]
    network: Network | None
    provenance: Mapping[str, Any]  # settings, seed, commit, versions, machine, date; a mapping inside is a group of rows
