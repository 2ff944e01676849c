"""What was checked and what failed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

KEPT = 12  # failures of one class that are written down; all are counted


@dataclass
class Outcome:
    """Counts by their names, as "solver/Auto", and failures with what is needed to see them again."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)  # what is no violation, but worth a look
    failures: list[dict[str, Any]] = field(default_factory=list)
    noted: list[dict[str, Any]] = field(default_factory=list)  # examples of remarks

    def violation(self, kind: str, detail: str, **about: Any) -> None:
        self.violations[kind] += 1
        _keep(self.failures, kind, detail, about)

    def remark(self, kind: str, detail: str, **about: Any) -> None:
        self.remarks[kind] += 1
        _keep(self.noted, kind, detail, about)

    def add(self, other: Outcome) -> None:
        self.counts += other.counts
        self.violations += other.violations
        self.remarks += other.remarks
        for mine, theirs in ((self.failures, other.failures), (self.noted, other.noted)):
            for entry in theirs:
                if sum(known["class"] == entry["class"] for known in mine) < KEPT:
                    mine.append(entry)

    def nested(self) -> dict[str, Any]:
        """Counts as {"solver": {"Auto": 3}}."""
        tree: dict[str, Any] = {}
        for name, count in sorted(self.counts.items()):
            group, slash, rest = name.partition("/")
            if slash:
                tree.setdefault(group, {})[rest] = count
            else:
                tree[name] = count
        return tree


def _keep(entries: list[dict[str, Any]], kind: str, detail: str, about: dict[str, Any]) -> None:
    if sum(entry["class"] == kind for entry in entries) < KEPT:
        entries.append({"class": kind, "detail": detail, **about})
