from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.image import imread

from browser import chromium, open_page
from convergent import InputError
from convergent.report import Curve, DemoPage, Network, Points, Score, SizeRow, write_demo_page

EMPTY = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
SQUARE = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.5]]) * 1e-3
RING = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])

MANY = np.linspace(0, 1, 300)
SMALL = SizeRow(
    nodes=100,
    networks=40,
    model=Score(0.993, 0.976, 0.0123, 4.56e-4),
    line=Score(0.958, 0.84, 0.044, 5e-3),
    mean=Score(0.0, 0.0, 0.25, 0.08),
    wins=39,
    largest_error=0.0789,
    iterations=19,
    worst_bound=8.305e-7,
    converged=40,
    seconds=1.5e-3,
    exact_seconds=0.5e-3,
)
LARGE = replace(
    SMALL, nodes=1200, networks=20, model=Score(0.951, 0.95, 0.0234, 7.89e-4), wins=8, worst_bound=9.42e-7, converged=19
)
PAGE = DemoPage(
    title="Pressure, learned",
    summary="A minute of training.",
    headlines=[("test error", "4.1 × 10⁻⁴"), ("seconds", "61")],
    curves=[Curve([0, 10, 20], [1.0, 0.1, 0.01], "loss"), Curve([20], [0.02], "validation mse")],
    points=[Points("100 pores", MANY, MANY**2, 0.96), Points("1,200 pores", MANY, MANY)],
    rows=[SMALL, LARGE],
    network=Network(SQUARE, RING, [1.0, 0.6, 0.3, 0.0], [0.9, 0.6, 0.4, 0.0]),
    provenance={"commit": "2a610f2", "versions": {"torch": "2.13.0", "python": "3.11"}, "sizes": [50, 200]},
)


class Reader(HTMLParser):
    """Reads a page, and insists that every tag is closed in its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.source = ""
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
        reader.source = (tmp_path / "page.html").read_text(encoding="utf-8")
        reader.feed(reader.source)
        reader.close()
        assert reader.open == []
        return reader

    return write_and_read


# --- the whole page ---


def test_it_shows_everything(read) -> None:
    page = read(PAGE)
    for words in ("Pressure, learned", "A minute of training.", "test error", "4.1 × 10⁻⁴", "seconds", "61"):
        assert words in page.text
    for words in ("0.993", "1.2 %", "7.9 %", "4.56 × 10⁻⁴", "8.31 × 10⁻⁷", "all 40", "39 of 40", "1,200", "19 of 20"):
        assert words in page.text
    for words in ("predicted pressure", "exact pressure", "absolute error", "4 pores and 4 throats"):
        assert words in page.text
    assert set(page.figures) == {"curves", "points", "network"}
    assert {value for tag, name, value in page.attributes if (tag, name) == ("div", "id")} == set(page.figures)


def test_the_comparison_comes_first_and_the_footer_is_a_table(read) -> None:
    page = read(PAGE)
    parts = (
        "A minute of training.",
        "test error",
        "How it compares",
        "Predicted against exact",
        "A network in 3-D",
        "Training",
        "How this",
    )
    places = [page.text.index(words) for words in parts]
    assert places == sorted(places)
    footer = page.source.partition("<footer>")[2].partition("</footer>")[0]
    rows = [re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row) for row in re.findall(r"<tr>.*?</tr>", footer)]
    assert rows == [["commit", "2a610f2"], ["versions"], ["torch", "2.13.0"], ["python", "3.11"], ["sizes", "50, 200"]]


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
    assert page.text.count(evil) == 8  # twice as title, summary, label and value, and three times in the footer
    escaped = "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x&gt;&amp;amp;"
    assert page.figures["curves"]["data"][0]["name"] == escaped
    assert page.figures["points"]["layout"]["annotations"][0]["text"] == escaped


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
        rows=[
            replace(SMALL, networks=2, model=Score(nan, -inf, nan, inf), wins=0, largest_error=inf, worst_bound=inf, converged=0)
        ],
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


# --- in a browser ---

# What plotly.js drew, and where the figures are on the page.
DRAWN = """(() => {
  const parts = (name, what) => document.querySelectorAll(`#${name} ${what}`).length;
  const network = document.getElementById("network");
  return {
    curves: parts("curves", ".scatterlayer .trace path.js-line"),
    titles: [...document.querySelectorAll("#points .annotation-text")].map((title) => title.textContent),
    points: parts("points", "canvas"),
    scene: parts("network", "#scene canvas, .gl-container canvas"),
    kinds: network.data.map((trace) => trace.type),
    corners: network.data.map((trace) => (trace.intensity ?? []).length),
    wide: document.documentElement.scrollWidth,
    places: ["points", "network", "curves"].map((name) => {
      const { left, top, right, bottom } = document.getElementById(name).getBoundingClientRect();
      return [left, top + scrollY, right, bottom + scrollY].map(Math.round);
    }),
  };
})()"""

# Presses the third button, and tells what the spheres show before and after.
PRESSED = """(async () => {
  const network = document.getElementById("network");
  const mesh = () => network.data.find((trace) => trace.type === "mesh3d");
  const shown = () => [mesh().intensity[0], mesh().cmax, mesh().colorbar.title.text];
  const before = shown();
  const redrawn = new Promise((done) => network.on("plotly_afterplot", done));
  document.querySelectorAll(".choice button")[2].click();
  await redrawn;
  const pressed = [...document.querySelectorAll(".choice button")].map((button) => button.getAttribute("aria-pressed"));
  return { before, after: shown(), pressed };
})()"""

needs_browser = pytest.mark.skipif(chromium() is None, reason="no Chromium is installed")


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (800, False), (390, False)])
def test_a_browser_draws_every_figure_without_an_error(tmp_path, width, dark) -> None:
    write_demo_page(tmp_path / "page.html", PAGE)
    visit = open_page(tmp_path / "page.html", width, dark, tmp_path / "page.png", ask=DRAWN)
    assert visit.console == []
    drawn = visit.answer
    assert drawn["curves"] == 2
    assert drawn["titles"] == ["100 pores  R² 0.960", "1,200 pores"]
    assert drawn["points"] >= 1
    assert drawn["scene"] >= 1
    assert drawn["kinds"] == ["scatter3d", "scatter3d", "mesh3d"]  # the frame, the throats, the pores
    assert drawn["corners"] == [0, 0, 4 * 162]  # of four spheres
    assert drawn["wide"] == width  # nothing to scroll sideways
    image = imread(tmp_path / "page.png")[..., :3]
    for left, top, right, bottom in drawn["places"]:
        pixels = image[top:bottom, max(left, 0) : right].reshape(-1, 3)
        assert (np.ptp(pixels, axis=1) > 0.3).sum() > 20  # dots, spheres and lines are coloured, background and text are not


@needs_browser
def test_a_button_changes_what_the_colours_show(tmp_path) -> None:
    write_demo_page(tmp_path / "page.html", PAGE)
    visit = open_page(tmp_path / "page.html", ask=PRESSED)
    assert visit.console == []
    assert visit.answer["before"] == [0.9, 1, "predicted pressure"]
    assert visit.answer["after"] == [0.1, pytest.approx(0.1), "absolute error"]
    assert visit.answer["pressed"] == ["false", "false", "true"]


@needs_browser
def test_an_error_on_the_page_is_noticed(tmp_path) -> None:
    write_demo_page(tmp_path / "page.html", PAGE)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    (tmp_path / "broken.html").write_text(page.replace('id="curves"', 'id="curve"'), encoding="utf-8")
    visit = open_page(tmp_path / "broken.html")
    assert any("No DOM element with id 'curves'" in line for line in visit.console)
