from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from convergent import InputError
from convergent.report import Network
from convergent.report.network_figure import MOST_SPHERES, draw_network

SQUARE = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.5]]) * 1e-3
RING = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])
NETWORK = Network(SQUARE, RING, [1.0, 0.6, 0.3, 0.0], [0.9, 0.6, 0.4, 0.0])


def test_a_network_in_three_views() -> None:
    figure = draw_network(NETWORK).figure
    assert [view["name"] for view in figure["views"]] == ["predicted pressure", "exact pressure", "absolute error"]
    predicted, exact, error = figure["views"]
    assert predicted["pores"] == [0.9, 0.6, 0.4, 0.0]
    assert exact["throats"][:6] == [1.0, 0.6, 0.6, 0.6, 0.3, 0.3]
    assert error["pores"] == [0.1, 0.0, 0.1, 0.0]
    assert (predicted["low"], predicted["high"]) == (exact["low"], exact["high"]) == (0.0, 1.0)
    parts = {trace["meta"]: trace for trace in figure["data"] if "meta" in trace}
    assert parts["throats"]["x"][:6] == [0.0, 1.0, None, 1.0, 1.0, None]
    assert len(parts["throats"]["line"]["color"]) == len(parts["throats"]["x"])
    assert parts["pores"]["z"] == [0.0, 0.0, 0.0, 0.5]
    assert parts["pores"]["marker"]["color"] == predicted["pores"]
    assert parts["pores"]["marker"]["showscale"]
    assert "exact 0.6" in parts["pores"]["text"][1]


def test_a_network_without_throats() -> None:
    figure = draw_network(Network([[1.0, 2.0, 3.0]], [[], []], [0.5], [0.5])).figure
    assert [trace.get("meta") for trace in figure["data"]] == [None, "pores"]
    assert all(view["low"] < view["high"] for view in figure["views"])
    assert draw_network(Network(np.zeros((0, 3)), np.zeros((2, 0), int), [], [])) is None


def test_pores_without_a_value_are_grey() -> None:
    network = Network(SQUARE, RING, [1.0, 0.6, 0.3, 0.0], [math.nan, 0.6, 0.4, math.inf])
    drawn = draw_network(network)
    _, grey_throats, throats, grey_pores, pores = drawn.figure["data"]
    assert len(grey_throats["x"]) == 3 * 3
    assert len(throats["x"]) == 3 * 1
    assert len(grey_pores["x"]) == len(pores["x"]) == 2
    assert drawn.note == "2 pores without a finite value are grey."
    nothing = draw_network(replace(network, predicted=[math.nan] * 4))
    assert nothing.figure["views"] == []
    assert [trace.get("meta") for trace in nothing.figure["data"]] == [None, None, "grey pores"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position": SQUARE[:, :2]}, r"network\.position: expected shape \[N, 3\], but got \[4, 2\]"),
        ({"position": SQUARE * math.nan}, r"network\.position: expected finite numbers"),
        ({"ends": RING.T}, r"network\.ends: expected shape \[2, E\], but got \[4, 2\]"),
        ({"ends": RING + 1}, r"network\.ends: expected whole numbers from 0 to 3"),
        ({"ends": RING * 1.0}, r"network\.ends: expected whole numbers from 0 to 3, but got float64"),
        ({"exact": [0.0], "predicted": [0.0]}, r"network\.exact: expected a value for each of 4 pores, but got 1"),
        ({"predicted": [0.0]}, r"network\.predicted: expected as many numbers as exact, 4"),
    ],
)
def test_what_is_no_network_is_refused(change, message) -> None:
    with pytest.raises(InputError, match=message):
        draw_network(replace(NETWORK, **change))


@pytest.mark.parametrize(("pores", "shaded"), [(100, True), (MOST_SPHERES, True), (MOST_SPHERES + 1, False)])
def test_spheres_are_for_networks_that_are_not_too_large(pores, shaded) -> None:
    values = np.linspace(0, 1, pores)
    network = Network(np.random.default_rng(0).random((pores, 3)), np.zeros((2, 0), int), values, values)
    radius = draw_network(network).figure["spheres"]
    assert 0 < radius < 0.1 if shaded else radius is None
