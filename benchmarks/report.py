"""What a benchmark found, as data on disk and as tables on the screen."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine
from benchmarks.measure import OURS, Timing
from convergent.storage.files import write_json
from convergent.training.provenance import commit


@dataclass
class Case:
    """One problem, solved by everybody."""

    name: str
    settings: dict[str, Any]
    timings: dict[str, Timing] = field(default_factory=dict)
    errors: dict[str, dict[str, Any]] = field(default_factory=dict)  # of every answer
    details: dict[str, dict[str, Any]] = field(default_factory=dict)  # settings, iterations, or why somebody sat out
    measured: dict[str, Any] = field(default_factory=dict)  # what is not a time, such as memory
    ours: str = OURS

    def ratio(self, peer: str, ours: str | None = None, best: bool = False) -> float | None:
        """How many times as long the peer takes, by medians or by the best repeats."""
        mine, theirs = self.timings.get(ours or self.ours), self.timings.get(peer)
        if mine is None or theirs is None:
            return None
        return theirs.minimum / mine.minimum if best else theirs.median / mine.median

    def to_json(self) -> dict[str, Any]:
        peers = [name for name in self.timings if name != self.ours]
        return {
            "name": self.name,
            "settings": self.settings,
            "ours": self.ours,
            "timings": {name: timing.to_json() for name, timing in self.timings.items()},
            "ratios": {name: {"median": self.ratio(name), "min": self.ratio(name, best=True)} for name in peers},
            "errors": self.errors,
            "details": self.details,
            "measured": self.measured,
        }


@dataclass(frozen=True)
class Target:
    """A number somebody promised. Whether it is met is a finding, never an assertion."""

    name: str
    value: float | None  # None: could not be measured
    at_least: float | None = None
    at_most: float | None = None

    @property
    def wanted(self) -> str:
        return f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"

    @property
    def met(self) -> bool | None:
        if self.value is None:
            return None
        above = self.at_least is None or self.value >= self.at_least
        return above and (self.at_most is None or self.value <= self.at_most)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "wanted": self.wanted, "value": self.value, "met": self.met}


@dataclass
class Report:
    benchmark: str
    quick: bool
    seed: int
    settings: dict[str, Any]
    cases: list[Case] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "benchmark": self.benchmark,
            "quick": self.quick,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "seed": self.seed,
            "commit": commit(),
            "machine": machine(),
            "settings": {"unit": "seconds", **self.settings},
            "cases": [case.to_json() for case in self.cases],
            "targets": [target.to_json() for target in self.targets],
        }

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.benchmark}.json"
        write_json(path, self.to_json())
        return path

    def show(self, console: Console) -> None:
        for case in self.cases:
            console.print(_case_table(self.benchmark, case))
        if self.targets:
            console.print(_target_table(self))


def _case_table(benchmark: str, case: Case) -> Table:
    table = Table(title=f"{benchmark}: {case.name}", title_justify="left")
    for heading in ("who", "median", "min", "times ours", "error", "note"):
        table.add_column(heading, justify="left" if heading in ("who", "note") else "right")
    for name in {**case.timings, **case.details}:
        timing, error = case.timings.get(name), case.errors.get(name, {})
        times = [duration(timing.median), duration(timing.minimum)] if timing else ["", ""]
        ratio = case.ratio(name)
        worst = next(iter(error.values()), None)
        table.add_row(
            name,
            *times,
            "" if ratio is None else f"{ratio:,.2f}",
            "" if worst is None else f"{worst:.1e}",
            _note(case, name),
        )
    numbers = {name: value for name, value in case.measured.items() if not isinstance(value, list | dict)}
    for name, value in numbers.items():
        table.add_row(name, "", "", "", "", f"{value:.4g}" if isinstance(value, float) else str(value))
    return table


def _note(case: Case, name: str) -> str:
    detail = case.details.get(name, {})
    if "skipped" in detail:
        return str(detail["skipped"])
    words = [str(detail[key]) for key in ("method",) if key in detail]
    words += [f"{detail[key]} {key}" for key in ("iterations",) if key in detail]
    words += ["extrapolated"] if detail.get("extrapolated") else []
    words += ["did not reach the error"] if detail.get("reached") is False else []
    return ", ".join(words)


def _target_table(report: Report) -> Table:
    title = f"{report.benchmark}: targets" + (" (quick sizes: for the form only)" if report.quick else "")
    table = Table("target", "wanted", "measured", "met", title=title, title_justify="left")
    for target in report.targets:
        value = "not measured" if target.value is None else f"{target.value:,.3g}"
        met = {True: "[green]yes[/]", False: "[red]no[/]", None: "-"}[target.met]
        table.add_row(target.name, target.wanted, value, met)
    return table


def duration(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
