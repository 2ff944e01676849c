"""The files of results, checked when they are read, and how to look things up in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from convergent.errors import InputError, expect
from convergent.training.run import read_json

Report = Mapping[str, Any]  # what a benchmark wrote
Case = Mapping[str, Any]  # one problem of it

TESTS = "cuda_tests"  # the file of tests on a GPU, which is no benchmark
NAMES = ("certificate", "w1", "sweep", "growth", "near_one", "elimination", "adjoint", "step", "cuda")
IN_A_REPORT = {"benchmark", "quick", "date", "seed", "commit", "machine", "settings", "cases", "targets"}
IN_A_CASE = {"name", "settings", "ours", "timings", "errors", "details", "measured"}
IN_A_TARGET = {"name", "wanted", "value", "met"}
IN_TESTS = {"date", "commit", "machine", "outcomes", "not_passed", "memcheck"}


def read_reports(folder: Path) -> dict[str, Report]:
    """Every file of the folder, by its name without .json.

    Raises:
        InputError: there is no such folder, or a file in it is not JSON or not what a benchmark writes.
    """
    expect(folder.is_dir(), "--out", "a folder with results of benchmarks", f"{folder}, which does not exist")
    return {path.stem: checked(path, read_json(path)) for path in sorted(folder.glob("*.json"))}


def checked(path: Path, report: Any) -> Report:
    """The report, if the page can be made from it. Of a file that the page does not know, only that it is an object."""
    wanted = IN_A_REPORT if path.stem in NAMES else IN_TESTS if path.stem == TESTS else set()
    _has(path, "the report", report, wanted)
    if path.stem in NAMES:
        for case in report["cases"]:
            _has(path, "a case", case, IN_A_CASE)
        for target in report["targets"]:
            _has(path, "a target", target, IN_A_TARGET)
    return report


def _has(path: Path, what: str, found: Any, keys: set[str]) -> None:
    if not isinstance(found, dict):
        raise InputError(f"{path}: expected {what} to be a JSON object, but got {type(found).__name__}")
    if missing := sorted(keys - found.keys()):
        raise InputError(f"{path}: expected {what} to be what a benchmark writes, but it has no {', '.join(map(repr, missing))}")


# --- looking things up ---


def cases(report: Report, start: str = "") -> Iterator[Case]:
    """Those whose name begins so."""
    return (case for case in report["cases"] if case["name"].startswith(start))


def median(case: Case, name: str) -> float | None:
    """Seconds, None where it was not timed."""
    timing = case["timings"].get(name)
    return None if timing is None else timing["median"]


def ratio(case: Case, name: str, ours: str | None = None) -> float | None:
    """How many times as long it takes as ours, by medians."""
    mine, theirs = median(case, ours or case["ours"]), median(case, name)
    return None if mine is None or theirs is None else theirs / mine


def peers(case: Case) -> list[str]:
    return [name for name in case["timings"] if name != case["ours"]]


def detail(case: Case, name: str) -> Mapping[str, Any]:
    return case["details"].get(name, {})
