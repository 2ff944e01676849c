from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from convergent import InputError
from convergent.report import Curve, DemoPage, Network, Points, SizeRow, number, write_demo_page
from convergent.report.figures import MOST_POINTS, draw_curves, draw_network, draw_points

EMPTY = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
SQUARE = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.5]]) * 1e-3
RING = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])

PAGE = DemoPage(
    title="Pressure, learned",
    summary="A minute of training.",
    headlines=[("test error", "4.1 × 10⁻⁴"), ("seconds", "61")],
    curves=[Curve([0, 10, 20], [1.0, 0.1, 0.01], "loss"), Curve([20], [0.02], "validation mse")],
    points=[Points("100 pores", [0.0, 0.5, 1.0], [0.1, 0.5, 0.9]), Points("200 pores", [0.25], [0.75])],
    rows=[
        SizeRow(100, 40, 4.56e-4, 0.0123, 0.0789, 19, 8.31e-7, 40),
        SizeRow(1200, 20, 7.89e-4, 0.0234, 0.0987, 26, 9.42e-7, 19),
    ],
    network=Network(SQUARE, RING, [1.0, 0.6, 0.3, 0.0], [0.9, 0.6, 0.4, 0.0]),
    provenance={"seed": 7, "commit": "2a610f2", "versions": {"torch": "2.13.0", "python": "3.11"}, "sizes": [50, 200]},
)


class Reader(HTMLParser):
    """Reads a page, and insists that every tag is closed in its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.styles = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in EMPTY:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if inside == "script":
            self.scripts[-1] += data
        elif inside == "style":
            self.styles += data
        else:
            self.text += data

    @property
    def figures(self) -> dict:
        return json.loads(self.scripts[0])


@pytest.fixture
def read(tmp_path):
    def write_and_read(page: DemoPage) -> Reader:
        write_demo_page(tmp_path / "page.html", page)
        reader = Reader()
        reader.feed((tmp_path / "page.html").read_text(encoding="utf-8"))
        reader.close()
        assert reader.open == []
        return reader

    return write_and_read


# --- the whole page ---


def test_it_shows_everything(read) -> None:
    page = read(PAGE)
    for words in ("Pressure, learned", "A minute of training.", "test error", "4.1 × 10⁻⁴", "seconds", "61"):
        assert words in page.text
    for words in ("4.56 × 10⁻⁴", "0.0123", "0.0789", "8.31 × 10⁻⁷", "all 40", "1,200", "19 of 20"):
        assert words in page.text
    for words in ("predicted pressure", "exact pressure", "absolute error", "4 pores and 4 throats"):
        assert words in page.text
    for words in ("seed", "7", "2a610f2", "torch 2.13.0 · python 3.11", "50, 200"):
        assert words in page.text
    assert set(page.figures) == {"curves", "points", "network"}
    assert {value for tag, name, value in page.attributes if (tag, name) == ("div", "id")} == set(page.figures)


def test_it_is_one_file_and_asks_for_no_other(read) -> None:
    page = read(PAGE)
    assert not {"img", "iframe", "object", "embed", "a", "base"} & set(page.tags)
    addresses = [value for _, name, value in page.attributes if name in ("src", "href", "srcset", "action", "data")]
    assert addresses == ["data:,"]
    assert any("default-src 'none'" in value for tag, name, value in page.attributes if (tag, name) == ("meta", "content"))
    data, plotly, own = page.scripts
    assert "plotly.js v" in plotly[:200]
    for part in (data, own, page.styles, page.text):
        assert "://" not in part
        assert "@import" not in part
        assert "url(" not in part


def test_the_same_contents_give_the_same_bytes(tmp_path) -> None:
    for name in ("one.html", "two.html"):
        write_demo_page(tmp_path / name, PAGE)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_a_page_that_cannot_be_made_leaves_the_old_one(tmp_path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(InputError, match=r"curve 'loss'\.values: expected as many numbers as steps, 2"):
        write_demo_page(path, replace(PAGE, curves=[Curve([0, 1], [1.0], "loss")]))
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("page.html", "old")]


def test_words_stay_words(read) -> None:
    evil = "</script><script>alert(1)</script><img src=x>&amp;"
    page = read(
        DemoPage(
            title=evil,
            summary=evil,
            headlines=[(evil, evil)],
            curves=[Curve([0], [1.0], evil)],
            points=[Points(evil, [0.0], [1.0])],
            rows=PAGE.rows,
            network=PAGE.network,
            provenance={evil: {evil: [evil]}},
        )
    )
    assert page.tags.count("script") == 3
    assert "img" not in page.tags
    assert page.text.count(evil) == 8  # twice as title, summary, label and value, and three times below
    for name in ("curves", "points"):
        assert (
            page.figures[name]["data"][0]["name"]
            == "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x&gt;&amp;amp;"
        )


def test_a_page_about_nothing(read) -> None:
    page = read(DemoPage("t", "s", [], [], [], [], None, {}))
    assert page.figures == {}
    assert "Nothing was logged" in page.text
    assert "no finite prediction" in page.text
    assert not {"table", "button"} & set(page.tags)


def test_a_run_that_went_wrong_is_shown_as_such(read) -> None:
    nan, inf = math.nan, math.inf
    wrong = DemoPage(
        title="t",
        summary="s",
        headlines=[],
        curves=[Curve([0, 1, 2, 3], [1.0, nan, inf, 0.0], "loss")],
        points=[Points("p", [0.0, 0.5, nan], [nan, 0.5, 1.0]), Points("q", [0.0], [inf])],
        rows=[SizeRow(10, 2, nan, inf, inf, 100, inf, 0)],
        network=Network(SQUARE, RING, [1.0, 0.5, 0.2, 0.0], [nan, 0.5, 0.3, 0.1]),
        provenance={},
    )
    page = read(wrong)
    assert "3 values that are not finite or not above zero are left out." in page.text
    assert "3 pores without a finite value are left out." in page.text
    assert "1 pore without a finite value is grey." in page.text
    for words in ("not a number", "∞", "0 of 2"):
        assert words in page.text


def test_plotly_is_imported_late() -> None:
    code = "import sys, convergent.report; sys.exit('plotly' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- numbers ---


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


# --- figures ---


def test_curves() -> None:
    figure = draw_curves(PAGE.curves).figure
    loss, validation = figure["data"]
    assert (loss["x"], loss["y"]) == ([0, 10, 20], [1.0, 0.1, 0.01])
    assert validation["name"] == "validation mse"
    assert "markers" in validation["mode"]  # a line through one point would not be seen
    assert figure["layout"]["yaxis"]["type"] == "log"
    assert draw_curves([Curve([], [], "loss")]) is None


def test_points_and_the_line_on_which_they_agree() -> None:
    drawn = draw_points(PAGE.points)
    small, large, line = drawn.figure["data"]
    assert (small["x"], small["y"], small["name"]) == ([0.0, 0.5, 1.0], [0.1, 0.5, 0.9], "100 pores")
    assert small["marker"]["color"] != large["marker"]["color"]
    assert line["x"] == line["y"] == [0.0, 1.0]
    assert drawn.note == ""


def test_many_points_are_thinned_but_the_worst_stays() -> None:
    rng = np.random.default_rng(0)
    groups = []
    for name, count in (("few", 3), ("some", 10_000), ("many", 50_000)):
        exact = rng.random(count)
        predicted = exact + 0.01 * rng.normal(size=count)
        predicted[count // 2] = exact[count // 2] + 5
        groups.append(Points(name, exact, predicted))
    drawn = draw_points(groups)
    *traces, _ = drawn.figure["data"]
    sizes = [len(trace["x"]) for trace in traces]
    assert sum(sizes) <= MOST_POINTS
    assert sizes[0] >= 1
    assert sizes[2] > 4 * sizes[1]
    assert all(max(trace["y"]) > 4 for trace in traces)
    assert f"{sum(sizes):,} of 60,003 pores are shown" in drawn.note
    assert draw_points(groups).figure == drawn.figure


def test_a_network_in_three_views() -> None:
    figure = draw_network(PAGE.network).figure
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
    assert [trace.get("meta") for trace in nothing.figure["data"]] == [None] * 3


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
        draw_network(replace(PAGE.network, **change))
