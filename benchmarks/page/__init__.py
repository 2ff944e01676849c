"""The page on the benchmarks, made from their files only: it runs nothing, and what is not in a file is not on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.page import certificate, cpu, elimination, figures, gpu, near_one, summary
from benchmarks.page.reports import TESTS, Report, read_reports, shown_from
from benchmarks.page.targets import target_table
from benchmarks.page.words import origin
from convergent.errors import expect
from convergent.report.reproduction import Draw, drawn
from convergent.training.run import write_atomically


@dataclass(frozen=True)
class Picture:
    """A figure and the name of its file."""

    name: str
    caption: str
    draw: Draw


Part = Callable[[Report], str] | Picture


@dataclass(frozen=True)
class Section:
    """What is shown of one file, from top to bottom; its targets and its origin follow by themselves."""

    name: str
    title: str
    parts: tuple[Part, ...] = ()


SECTIONS = (
    Section(certificate.NAME, "Error bound and true error", (certificate.numbers,)),
    Section(
        "w1",
        "A whole layer",
        (
            cpu.layer,
            Picture("layer", "Time of a layer, forward and backward, relative to convergent.", figures.layer),
            cpu.layer_memory,
            cpu.layer_explanation,
        ),
    ),
    Section("sweep", "One product with all heads", (cpu.products, cpu.triad)),
    Section(
        "growth",
        "Growth with the number of edges",
        (cpu.growth, Picture("growth", "Time against the number of edges on the CPU.", figures.growth)),
    ),
    Section(
        "near_one",
        "Contraction near one",
        (
            Picture(
                "near-one",
                "Time relative to Auto: orange is slower, blue faster; grey: not run, with ✗: error not reached; * extrapolated.",
                figures.near_one,
            ),
            near_one.near_one,
        ),
    ),
    Section("elimination", "Rows that sum to almost one", (elimination.elimination,)),
    Section("adjoint", "Backward over forward", (elimination.adjoint,)),
    Section("step", "A whole training step", (cpu.step,)),
    Section(
        "cuda",
        "On a GPU",
        (
            gpu.iteration,
            Picture("gpu-iteration", "Fraction of the copy bandwidth that an iteration reaches.", figures.copy_fraction),
            gpu.iteration_tables,
            gpu.iteration_misses,
            gpu.layer,
            gpu.training,
            gpu.large,
            gpu.growth,
            Picture("gpu-growth", "Time against the number of edges on a GPU.", figures.growth_on_a_gpu),
            gpu.methods,
        ),
    ),
    Section("elimination_cuda", "Rows that sum to almost one, on a GPU", (elimination.elimination,)),
    Section(TESTS, "Tests on a GPU", (gpu.tests,)),
)


def write_page(folder: Path, page: Path) -> Path:
    """Make the page from ``folder``/NAME.json, its pictures in the folder beside it that has the name of the page.

    Raises:
        InputError: there is no such folder, the page is a folder, or a file is not what a benchmark writes.
    """
    expect(not page.is_dir(), "--page", "a file to write", f"the folder {page}")
    reports = read_reports(folder)
    known = {section.name for section in SECTIONS}
    sections = [*SECTIONS, *(Section(name, unknown_title(name)) for name in reports if name not in known)]
    page.parent.mkdir(parents=True, exist_ok=True)
    for name, report in reports.items():
        with shown_from(folder / f"{name}.json"):  # what the overview takes of all of them
            summary.overview({name: name}, {name: report})
    with shown_from(folder / f"{certificate.NAME}.json"):
        picture = certificate.picture(reports.get(certificate.NAME), page)
    parts = [
        summary.HEAD,
        picture,
        summary.overview({section.name: section.title for section in sections}, reports),
        summary.READING,
    ]
    for section in sections:
        with shown_from(folder / f"{section.name}.json"):
            parts.append(written(section, reports.get(section.name), page))
    write_atomically(page, ("\n\n".join(filter(None, parts)) + "\n").encode())
    return page


def unknown_title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def written(section: Section, report: Report | None, page: Path) -> str:
    heading = f"## {section.title}"
    if report is None:
        return f'{heading}\n\n!!! warning "Not measured"\n    There is no `{section.name}.json`.'
    parts = [
        heading,
        summary.state_warning(section.name, report),
        *(shown(part, report, page) for part in section.parts),
        summary.remark(section.name, report),
        target_table(report),
        origin(report),
    ]
    return "\n\n".join(filter(None, parts))


def shown(part: Part, report: Mapping[str, object], page: Path) -> str:
    if isinstance(part, Picture):
        return drawn(report, part.name, part.caption, part.draw, page)
    return part(report)
