"""The benchmark ``certificate``: its picture, which stands at the top of the page, and some of its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from benchmarks.page.reports import Report, cases
from convergent.report.reproduction_figures import save
from convergent.report.reproduction_tables import grid

NAME = "certificate"  # of the benchmark, its file and its picture
CAPTION = "A solved network, and how the certified error bound follows the true error."
DPI = 150  # its sheet is larger than that of the other pictures
SHOWN = 8  # rows of the table, from the first step to the last
COLUMNS = {"steps": "steps", "step_length": "length of the last step", "error": "true error", "bound": "certified bound"}


def picture(report: Report | None, page: Path) -> str:
    """Drawn by the benchmark itself into the folder of images beside the page, for other pages too."""
    if report is None:
        return ""
    figure = import_module(f"benchmarks.{NAME}").draw(report)
    save(figure, page.parent / "images" / f"{NAME}.png", DPI)
    return f"![{CAPTION}](images/{NAME}.png)\n\n*{CAPTION}*"


def numbers(report: Report) -> str:
    return "\n\n".join(table(case["name"], case["measured"]) for case in cases(report) if COLUMNS.keys() <= case["measured"].keys())


def table(name: str, measured: dict[str, Sequence[float]]) -> str:
    """Evenly chosen rows of the curves that the picture shows."""
    last = len(measured["steps"]) - 1
    rows = sorted({round(place * last / (SHOWN - 1)) for place in range(SHOWN)})
    body = [[f"{measured['steps'][row]:,}", *(f"{measured[key][row]:.1e}" for key in list(COLUMNS)[1:])] for row in rows]
    words = f"{name[:1].upper()}{name[1:]}: the largest over all nodes, after more and more steps."
    return f"{words}\n\n{grid(list(COLUMNS.values()), body)}"
