"""The documentation pages: they build without a warning, and a browser shows them without an error."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from importlib.util import find_spec
from pathlib import Path

import pytest

from browser import chromium, open_page

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
NAMES = [str(page.relative_to(ROOT / "docs")) for page in PAGES]
COLUMNS = 80
NARROW = 390  # CSS pixels, a phone

BUILDS = all(find_spec(name) for name in ("mkdocs", "material", "mkdocstrings", "latex2mathml"))
needs_mkdocs = pytest.mark.skipif(not BUILDS, reason="needs the extra docs")
needs_browser = pytest.mark.skipif(chromium() is None, reason="needs Chromium or Chrome")

# Whatever is wider than the page and does not scroll in a box of its own shows in the width of the whole.
LOOK = """
(async () => {
  const images = [...document.images];
  await Promise.all(images.map((image) => image.decode().catch(() => null)));
  return {
    missing: images.filter((image) => image.naturalWidth === 0).map((image) => image.src),
    width: document.documentElement.scrollWidth,
    elsewhere: performance.getEntriesByType("resource").map((entry) => entry.name).filter((name) => name.startsWith("http")),
  };
})()
"""

SEARCH = """
(async () => {
  const field = document.querySelector(".md-search__input");
  field.focus();
  field.value = "Anderson";
  field.dispatchEvent(new Event("keyup", { bubbles: true }));
  for (let turn = 0; turn < 100; turn++) {
    const found = document.querySelectorAll(".md-search-result__item").length;
    if (found > 0) return found;
    await new Promise((done) => setTimeout(done, 100));
  }
  return 0;
})()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, built in strict mode: a warning of MkDocs is an error."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", timeout=300)
    assert done.returncode == 0, done.stderr
    return target


def built(site: Path, name: str) -> Path:
    return site / Path(name).with_suffix(".html")


@needs_mkdocs
@needs_browser
@pytest.mark.parametrize("name", NAMES)
def test_a_browser_shows_the_page(site: Path, name: str) -> None:
    visit = open_page(built(site, name), width=NARROW, ask=LOOK)
    assert visit.console == []
    assert visit.answer["missing"] == []
    assert visit.answer["elsewhere"] == []
    assert visit.answer["width"] <= NARROW, f"the page scrolls sideways on a window of {NARROW} pixels"


@needs_mkdocs
@needs_browser
def test_the_search_works_without_a_server(site: Path) -> None:
    visit = open_page(built(site, "index.md"), ask=SEARCH)
    assert visit.console == []
    assert visit.answer >= 3


@needs_mkdocs
@needs_browser
def test_the_browser_finds_a_missing_figure_an_error_and_a_wide_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    wide = '<div style="width: 600px">wide</div>'
    page.write_text(f'<meta name="viewport" content="width=device-width"><img src="none.png">{wide}<script>nothing()</script>')
    visit = open_page(page, width=NARROW, ask=LOOK)
    assert any("nothing is not defined" in line for line in visit.console)
    assert [Path(source).name for source in visit.answer["missing"]] == ["none.png"]
    assert visit.answer["width"] >= 600


@needs_mkdocs
def test_formulas_are_rendered(site: Path) -> None:
    pages = {name: re.sub("<pre.*?</pre>", "", built(site, name).read_text(encoding="utf-8"), flags=re.DOTALL) for name in NAMES}
    assert "<math" in pages["certificates.md"]
    assert "<math" in pages["api/networks.md"]
    for name, page in pages.items():
        assert "arithmatex" not in page, name
        assert ":math:" not in page, name
        assert ".. math::" not in page, name


@needs_mkdocs
@pytest.mark.parametrize("name", NAMES)
def test_code_of_the_built_page_fits(site: Path, name: str) -> None:
    """Signatures and examples from docstrings included; a block with the class wrap shows a whole file and wraps its lines."""
    page = re.sub(r'<div class="wrap highlight">.*?</pre>', "", built(site, name).read_text(encoding="utf-8"), flags=re.DOTALL)
    blocks = re.findall(r"<pre.*?>(.*?)</pre>", page, re.DOTALL)
    assert blocks or name in ("reproduction.md", "benchmarks.md"), "no code was found"
    lines = [line for block in blocks for line in unescape(re.sub(r"<[^>]+>", "", block)).splitlines()]
    assert [line for line in lines if len(line) > COLUMNS] == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=[*NAMES, "README.md"])
def test_code_fits(page: Path) -> None:
    wide = [f"{page.name}:{number}: {line}" for number, line in code_lines(page.read_text(encoding="utf-8")) if len(line) > COLUMNS]
    assert wide == []


def code_lines(text: str) -> list[tuple[int, str]]:
    """The lines of all blocks of code, fenced or indented, with their numbers."""
    found, fence, last = [], "", ""
    for number, line in enumerate(text.splitlines(), 1):
        marker = re.match(r" *(```+|~~~+)", line)
        if marker and not fence:
            fence = marker[1]
        elif marker and marker[1].startswith(fence):
            fence = ""
        elif fence:
            found.append((number, line))
        elif line.startswith("    ") and not re.match(r"([-*+]|\d+\.) ", last):
            found.append((number, line[4:]))
        if line and not line.startswith(" "):
            last = line  # an indented line goes on with this one, which may be the item of a list
    return found


def test_code_lines_are_found() -> None:
    text = "words\n\n    indented\n\n- item\n\n    more of it\n\n```python\nfenced\n```\nafter\n"
    assert code_lines(text) == [(3, "indented"), (10, "fenced")]
