from __future__ import annotations

import math

import numpy as np

from convergent.report import Curve, Points
from convergent.report.figures import MOST_POINTS, draw_curves, draw_points


def test_curves() -> None:
    figure = draw_curves([Curve([0, 10, 20], [1.0, 0.1, 0.01], "loss"), Curve([20], [0.02], "validation mse")]).figure
    loss, validation = figure["data"]
    assert (loss["x"], loss["y"]) == ([0, 10, 20], [1.0, 0.1, 0.01])
    assert validation["name"] == "validation mse"
    assert "markers" in validation["mode"]  # a line through one point would not be seen
    assert figure["layout"]["yaxis"]["type"] == "log"
    assert draw_curves([Curve([], [], "loss")]) is None


def test_every_group_of_points_has_its_own_panel() -> None:
    drawn = draw_points([Points("100 pores", [0.0, 0.5, 1.0], [0.1, 0.5, 0.9], 0.96), Points("200 pores", [0.25], [0.75])])
    small, line, large, _ = drawn.figure["data"]
    assert (small["x"], small["y"]) == ([0.0, 0.5, 1.0], [0.1, 0.5, 0.9])
    assert (large["x"], large["y"]) == ([0.25], [0.75])
    assert line["x"] == line["y"] == [0.0, 1.0]
    assert [trace["xaxis"] for trace in drawn.figure["data"]] == ["x", "x", "x2", "x2"]
    layout = drawn.figure["layout"]
    assert [note["text"] for note in layout["annotations"]] == ["<b>100 pores</b>  R² 0.960", "200 pores"]
    ranges = [layout[axis]["range"] for axis in ("xaxis", "xaxis2", "yaxis", "yaxis2")]
    assert all(shared == ranges[0] for shared in ranges)
    assert ranges[0][0] < 0 < 1 < ranges[0][1]
    assert drawn.note == ""


def test_panels_do_not_overlap_in_either_layout() -> None:
    drawn = draw_points([Points(str(index), [0.0, 1.0], [0.0, 1.0]) for index in range(5)])
    for name, columns in (("layout", 4), ("narrow", 2)):
        layout = drawn.figure[name]
        panels = [(layout[f"xaxis{key}"]["domain"], layout[f"yaxis{key}"]["domain"]) for key in ("", 2, 3, 4, 5)]
        assert len({tuple(x) for x, _ in panels}) == columns
        for index, (x, y) in enumerate(panels):
            assert 0 <= x[0] < x[1] <= 1
            assert 0 <= y[0] < y[1] <= 1
            for other_x, other_y in panels[:index]:
                assert x[0] > other_x[1] or other_x[0] > x[1] or y[0] > other_y[1] or other_y[0] > y[1]


def test_many_points_are_thinned_but_the_largest_error_stays() -> None:
    rng = np.random.default_rng(0)
    groups = []
    for name, count in (("few", 3), ("some", 10_000), ("many", 50_000)):
        exact = rng.random(count)
        predicted = exact + 0.01 * rng.normal(size=count)
        predicted[count // 2] = exact[count // 2] + 5
        groups.append(Points(name, exact, predicted))
    drawn = draw_points(groups)
    traces = [trace for trace in drawn.figure["data"] if trace["mode"] == "markers"]
    assert [len(trace["x"]) for trace in traces] == [3, MOST_POINTS // 3, MOST_POINTS // 3]
    assert all(max(trace["y"]) > 4 for trace in traces)
    assert f"At most {MOST_POINTS // 3:,} pores of each size are shown" in drawn.note
    assert draw_points(groups).figure == drawn.figure


def test_points_without_a_finite_value_are_counted() -> None:
    nan, inf = math.nan, math.inf
    drawn = draw_points([Points("p", [0.0, 0.5, nan], [nan, 0.5, 1.0]), Points("q", [0.0], [inf])])
    assert drawn.note == "3 pores without a finite value are left out."
    assert [trace["mode"] for trace in drawn.figure["data"]] == ["markers", "lines"]
    assert draw_points([Points("q", [0.0], [inf])]) is None
