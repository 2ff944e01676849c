"""Every target of a file, met or not: what was wanted and what was measured."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.page.reports import Report
from convergent.report.reproduction_tables import NONE, grid

MET = {True: "✓ met", False: "**✗ missed**", None: "? not measured"}


def count(reports: Iterable[Report]) -> str:
    """3 of 6"""
    verdicts = [target["met"] for report in reports for target in report.get("targets") or ()]
    return f"{sum(map(bool, verdicts))} of {len(verdicts)}" if verdicts else NONE


def target_table(report: Report) -> str:
    targets = report.get("targets") or ()
    if not targets:
        return ""
    body = [[target["name"], target["wanted"], value_words(target["value"]), MET[target["met"]]] for target in targets]
    return f"**Targets: {count([report])} met**\n\n" + grid(["target", "wanted", "measured", "result"], body)


def value_words(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def missed(report: Report, part: str = "") -> bool:
    """Whether a target with these words in its name was measured and is not met."""
    return any(target["met"] is False and part in target["name"] for target in report["targets"])


def wanted(report: Report, name: str) -> float | None:
    """The number of a target such as '>= 15'."""
    found = [target["wanted"] for target in report["targets"] if target["name"] == name]
    return float(found[0].split()[1]) if found else None
