"""results/campaign.json: an entry for every part and device, each with where it came from; a new run replaces only its own."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from campaign.outcome import Outcome
from convergent.training.provenance import commit
from convergent.training.run import read_json, write_json


def entry(outcome: Outcome, seed: int, seconds: float, stopped: bool, settings: dict[str, Any]) -> dict[str, Any]:
    """What one part found on one device."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "seconds": round(seconds, 1),
        "stopped_early": stopped,
        "commit": commit(),
        "machine": machine(),
        "settings": settings,
        **outcome.nested(),
        "violations": dict(outcome.violations.most_common()),
        "remarks": dict(outcome.remarks.most_common()),
        "failures": outcome.failures,
        "examples_of_remarks": outcome.noted,
    }


def merge(path: Path, name: str, found: dict[str, Any]) -> None:
    """``name`` is "kills" or, of systems, "systems on cpu": what other runs wrote stays."""
    known: dict[str, Any] = read_json(path) if path.exists() else {"campaign": {}}
    parts = {**known.get("campaign", {}), name: found}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"campaign": dict(sorted(parts.items()))})


def show(name: str, outcome: Outcome, console: Console) -> None:
    """Counts, and every class of violation with one example."""
    shown = ("systems", "adjoints", "gradients", "kills", "inputs", "calls")
    counts = ", ".join(f"{outcome.counts[count]:,} {count}" for count in shown if outcome.counts[count])
    color = "red" if outcome.violations else "green"
    console.print(f"[bold]{name}[/]: {counts or 'nothing'}; [{color}]{outcome.violations.total():,} violations[/]")
    for title, counted, examples in (
        ("violation", outcome.violations, outcome.failures),
        ("remark", outcome.remarks, outcome.noted),
    ):
        if not counted:
            continue
        table = Table(title, "times", "again", "example", box=None)
        for kind, count in counted.most_common():
            example = next((each for each in examples if each["class"] == kind), {})
            table.add_row(escape(kind), str(count), str(example.get("again", "")), escape(str(example.get("detail", ""))[:300]))
        console.print(table)


def dumped(found: Any) -> str:
    return json.dumps(found, indent=1, default=str)
