"""Numbers and names as the page writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.page.reports import Case, Report
from convergent.report.reproduction_tables import NONE, memory_words

NOT_MEASURED = "Explanation, which no file measures"


def tidy(name: str) -> str:
    """The name of a case as a heading."""
    return re.sub(r"\b1 heads\b", "1 head", name)


def problem(case: Case) -> str:
    """What was solved: sizes from the settings of the case."""
    settings = case["settings"]
    heads = settings["heads"]
    return f"{settings['nodes']:,} nodes, {settings['edges']:,} edges, {heads} head{'s' if heads > 1 else ''}"


def explanation(text: str) -> str:
    return f"*{NOT_MEASURED}: {text}*"


def machine_words(machine: Mapping[str, Any]) -> str:
    """Processor, cores, memory and card; no more than says what a number may be compared with."""
    memory = memory_words(int(machine["memory_gib"] * 2**30)) if machine.get("memory_gib") else None
    parts = (machine.get("cpu"), f"{machine['cores']} cores" if machine.get("cores") else None, memory, machine.get("gpu"))
    return ", ".join(str(part) for part in parts if part)


def commit_words(report: Report) -> str:
    commit = report.get("commit") or {}
    return f"`{str(commit.get('hash'))[:7]}`" + (", with changes" if commit.get("dirty") else "")


def day(report: Report) -> str:
    return str(report.get("date", NONE))[:10]


def origin(report: Report) -> str:
    """What it takes to measure it again, in one line below a section."""
    machine = report.get("machine") or {}
    versions = {name: found for name, found in (machine.get("versions") or {}).items() if found}
    facts = {
        "measured": f"{day(report)} at commit {commit_words(report)}",
        "on": machine_words(machine),
        "threads": machine.get("torch_threads"),
        "load average": " ".join(f"{load:g}" for load in machine.get("load_average") or ()),
        "seed": report.get("seed"),
        "repeats of a time": repeats(report),
        "versions": ", ".join(f"{name} {found}" for name, found in versions.items()),
    }
    return "<small>" + " · ".join(f"{name} {said}" for name, said in facts.items() if said not in (None, "")) + "</small>"


def repeats(report: Report) -> str:
    counts = [timing["repeats"] for case in report.get("cases", ()) for timing in case["timings"].values()]
    if not counts:
        return ""
    return f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"{counts[0]}"


def columns(heads: Sequence[str], rows: Mapping[str, Sequence[str]], corner: str = "") -> tuple[list[str], list[list[str]]]:
    """Heads and body of a table with names at the left."""
    return [corner, *heads], [[name, *cells] for name, cells in rows.items()]
