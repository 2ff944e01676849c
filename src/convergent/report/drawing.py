"""What the figures of a page share: their form, and how numbers become data for plotly.js."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convergent.errors import expect

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Trace = dict[str, Any]

NEUTRAL = "#8b949e"
DIGITS = 6


@dataclass(frozen=True)
class Drawn:
    """A figure, and what the reader has to know about it in words."""

    figure: dict[str, Any]
    note: str


def figure_of(traces: list[Trace], layout: dict[str, Any]) -> dict[str, Any]:
    """Checked by plotly, and back as plain data."""
    from plotly.graph_objects import Figure
    from plotly.io import to_json

    clear = "rgba(0,0,0,0)"
    figure = Figure(traces, {"template": "none", "autosize": True, "paper_bgcolor": clear, "plot_bgcolor": clear} | layout)
    return dict(json.loads(to_json(figure, engine="json")))


def sentence(count: int, what: str, words: str) -> str:
    """A sentence about what a figure cannot show, or nothing where it shows all."""
    if not count:
        return ""
    said = words.replace("{is}", "is" if count == 1 else "are")
    return f"{count:,} {what}{'' if count == 1 else 's'} {said}."


def pair(kind: str, name: str, first: str, one: ArrayLike, second: str, other: ArrayLike) -> tuple[Floats, Floats]:
    """Two lists of numbers, equally long."""
    where = f"{kind} '{name}'" if name else kind
    left, right = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    expect(left.ndim == 1, f"{where}.{first}", "a list of numbers", f"shape {list(left.shape)}")
    expect(left.shape == right.shape, f"{where}.{second}", f"as many numbers as {first}, {len(left)}", f"shape {list(right.shape)}")
    return left, right


def plain(values: Floats) -> list[float]:
    """With as many digits as a screen can show."""
    return [float(f"{value:.{DIGITS}g}") for value in values]
