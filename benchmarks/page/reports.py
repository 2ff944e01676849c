"""The files of results, checked when they are read, and how to look things up in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from convergent.errors import InputError, expect, first_line
from convergent.training.run import read_json

Report = Mapping[str, Any]  # what a benchmark wrote
Case = Mapping[str, Any]  # one problem of it

TESTS = "cuda_tests"  # the file of tests on a GPU, which is no benchmark
NAMES = ("certificate", "w1", "sweep", "growth", "near_one", "elimination", "adjoint", "step", "cuda", "elimination_cuda")
IN_A_REPORT = {"benchmark", "quick", "date", "seed", "commit", "machine", "settings", "cases", "targets"}
IN_A_CASE = {"name", "settings", "ours", "timings", "errors", "details", "measured"}
IN_A_TARGET = {"name", "wanted", "value", "met"}
IN_TESTS = {"date", "commit", "machine", "outcomes", "not_passed", "memcheck"}
OBJECTS = ("commit", "machine", "settings", "outcomes", "memcheck")
LISTS = ("cases", "targets", "not_passed")
BY_NAME = ("timings", "errors", "details")  # of a case: an object for everything that was run
NUMBERS = {"timings": ("median", "repeats"), "errors": ()}  # objects of numbers and lists, and what they must have
KINDS: dict[type, str] = {dict: "a JSON object", list: "a list", str: "a text"}
WRONG = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)  # what a damaged value leads to


def read_reports(folder: Path) -> dict[str, Report]:
    """Every file of the folder, by its name without .json.

    Raises:
        InputError: there is no such folder, or a file in it is not JSON or not what a benchmark writes.
    """
    expect(folder.is_dir(), "--out", "a folder with results of benchmarks", f"{folder}, which does not exist")
    return {path.stem: checked(path, read_json(path)) for path in sorted(folder.glob("*.json"))}


def checked(path: Path, report: Any) -> Report:
    """The report, if the page can be made from it. Of a file that the page does not know, only what every report has in common."""
    wanted = IN_A_REPORT if path.stem in NAMES else IN_TESTS if path.stem == TESTS else set()
    _has(path, "the report", report, wanted)
    for names, kind in ((OBJECTS, dict), (LISTS, list)):
        for name in names:
            if report.get(name) is not None or name in wanted:
                _is(path, name, report.get(name), kind)
    if path.stem in NAMES:
        for number, case in enumerate(report["cases"]):
            _check_case(path, f"cases[{number}]", case)
        for number, target in enumerate(report["targets"]):
            _check_target(path, f"targets[{number}]", target)
    return report


def _check_case(path: Path, place: str, case: Any) -> None:
    _has(path, place, case, IN_A_CASE)
    for name in ("name", "ours"):
        _is(path, f"{place}.{name}", case[name], str)
    for name in ("settings", "measured", *BY_NAME):
        _is(path, f"{place}.{name}", case[name], dict)
    for part, needed in NUMBERS.items():
        for name, found in case[part].items():
            inside = f"{place}.{part}[{name!r}]"
            _has(path, inside, found, set(needed))
            for key, value in found.items():
                if key in needed or not isinstance(value, list):
                    _is_number(path, f"{inside}.{key}", value)
    for name, found in case["details"].items():
        _is(path, f"{place}.details[{name!r}]", found, dict)


def _check_target(path: Path, place: str, target: Any) -> None:
    _has(path, place, target, IN_A_TARGET)
    for name in ("name", "wanted"):
        _is(path, f"{place}.{name}", target[name], str)
    if target["value"] is not None:
        _is_number(path, f"{place}.value", target["value"])
    met = target["met"]
    expect(met is None or isinstance(met, bool), f"{path}: {place}.met", "true, false or null", repr(met))


def _is(path: Path, place: str, found: Any, kind: type) -> None:
    expect(isinstance(found, kind), f"{path}: {place}", KINDS[kind], type(found).__name__)


def _is_number(path: Path, place: str, found: Any) -> None:
    number = isinstance(found, int | float) and not isinstance(found, bool)
    expect(number, f"{path}: {place}", "a number", repr(found)[:80])


def _has(path: Path, what: str, found: Any, keys: set[str]) -> None:
    if not isinstance(found, dict):
        raise InputError(f"{path}: expected {what} to be a JSON object, but got {type(found).__name__}")
    if missing := sorted(keys - found.keys()):
        raise InputError(f"{path}: expected {what} to be what a benchmark writes, but it has no {', '.join(map(repr, missing))}")


@contextmanager
def shown_from(path: Path) -> Iterator[None]:
    """Names the file where a number that only one section reads is missing, or is no number.

    Raises:
        InputError: what is inside ends in the errors of such values.
    """
    try:
        yield
    except InputError:
        raise
    except WRONG as error:
        said = f"no {error}" if isinstance(error, KeyError) else f"a value that cannot be shown ({first_line(error)})"
        raise InputError(f"{path}: expected what a benchmark writes, but found {said}") from error


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
