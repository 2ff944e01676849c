"""What a page is made from: plain numbers and words, no model and no run."""

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
class SizeRow:
    """The test at one size of network."""

    nodes: int
    networks: int
    mse: float
    mean_error: float
    largest_error: float
    iterations: int
    worst_bound: float  # no fixed point of these networks is further than this from the exact one
    converged: int  # networks, of ``networks``


@dataclass(frozen=True)
class Points:
    """Pairs of an exact and a predicted value, shown in one colour."""

    name: str
    exact: Sequence[float]
    predicted: Sequence[float]


@dataclass(frozen=True)
class Network:
    """A network in space."""

    position: ArrayLike  # [N, 3]
    ends: ArrayLike  # [2, E] every throat once
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
    provenance: Mapping[str, Any]  # settings, seed, commit, versions, machine, date; a mapping inside is one line
