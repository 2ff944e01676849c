"""The top of the page: what was measured, where, with which success, how to read it and how to run it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.page.reports import TESTS, Report
from benchmarks.page.targets import count
from benchmarks.page.words import NOT_MEASURED, commit_words, day, machine_words
from convergent.report.reproduction_tables import NONE, bullets, grid, listed

MISSING, QUICK, DONE = "not measured", "small sizes, for the form only", "complete"

HEAD = """# Benchmarks

How fast convergent is, against other code on the same problems and against the limits of the machine. The page is made from the
files in `results/bench/` by `convergent bench --page docs/benchmarks.md`; every number on it comes from them."""

READING = f"""## How to read the numbers

- A **ratio** is the median time of the other over the median time of convergent, both from the same run: above 1 convergent is
  faster, below 1 the other is.
- Runs are **interleaved**, convergent before every other, so that a busy machine slows all alike. Short operations are repeated
  in a loop; what takes some seconds was run once or a few times. The line below a section has the number of repeats and the load.
- All solve the **same problem to the same error**, compared with a solution in float64. Where an error stays above it, the cell
  says so.
- A **target** is a number that the project set itself. Those that are missed are listed like those that are met.
- *{NOT_MEASURED}* marks what we believe and did not measure.

## Run it again

```console
$ make bench                                  # on the CPU, into results/bench/
$ convergent bench --device cuda              # on a GPU
$ convergent bench w1 --quick --out try       # small sizes, to see that it runs
$ convergent bench --page docs/benchmarks.md  # this page; runs no benchmark
```"""


def overview(titles: Mapping[str, str], reports: Mapping[str, Report]) -> str:
    """A line per file: what it measures, its state, how many targets are met, and since when; then the machines."""
    body = [line(name, title, reports.get(name)) for name, title in titles.items()]
    table = grid(["what", "file", "state", "targets met", "commit", "date"], body)
    return "\n\n".join(filter(None, [table, totals(list(reports.values())), machines(reports)]))


def line(name: str, title: str, report: Report | None) -> list[str]:
    what = [f"[{title}](#{anchor(title)})", f"`{name}.json`"]
    if report is None:
        return [*what, MISSING, *[NONE] * 3]
    state = QUICK if report.get("quick") else DONE
    met = passed(report) if name == TESTS else count([report])
    return [*what, state, met, commit_words(report), day(report)]


def machines(reports: Mapping[str, Report]) -> str:
    """Every machine once, with the files that come from it."""
    found: dict[str, list[str]] = {}
    for name, report in reports.items():
        found.setdefault(machine_words(report.get("machine") or {}), []).append(f"`{name}.json`")
    return bullets(f"{machine}: {listed(names)}" for machine, names in found.items() if machine)


def passed(report: Report) -> str:
    return f"{report['outcomes'].get('passed', 0)} of {sum(report['outcomes'].values())} tests"


def totals(reports: Sequence[Report]) -> str:
    """Targets on the CPU and on a GPU; small sizes do not count."""
    full = [report for report in reports if not report.get("quick") and report.get("targets")]
    on_a_gpu = [report for report in full if (report.get("settings") or {}).get("device") == "cuda"]
    on_the_cpu = [report for report in full if report not in on_a_gpu]
    said = [f"{count(found)} on {where}" for found, where in ((on_the_cpu, "the CPU"), (on_a_gpu, "a GPU")) if found]
    return f"**Targets met: {', '.join(said)}.**" if said else ""


def anchor(title: str) -> str:
    """As the extension toc of Markdown makes it."""
    return "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -").replace(" ", "-")


def state_warning(name: str, report: Report) -> str:
    """What a reader must know before the numbers of a file."""
    lines = []
    if report.get("quick"):
        lines.append(f'!!! warning "Small sizes"\n    `{name}.json` was made with `--quick`: {QUICK}.')
    failed = (report.get("settings") or {}).get("failed") or {}
    if failed:
        parts = bullets(f"{part}: {reason}" for part, reason in failed.items()).replace("\n", "\n    ")
        lines.append(f'!!! warning "Not complete"\n    Parts that failed:\n\n    {parts}')
    return "\n\n".join(lines)


# What is known of a file and not in it; gone when the file is measured again.
REMARKS = {
    ("cuda", "2026-11-16T18:32:33+00:00"): "During this run another process computed on one of the cores.",
    (
        "near_one",
        "2026-11-16T08:23:12+00:00",
    ): "The limits of time were longer in an earlier version of this benchmark: what is not "
    "reached here may be reached with more time.",
}


def remark(name: str, report: Report) -> str:
    found = REMARKS.get((name, str(report.get("date"))))
    return f"*Not in the file: {found}*" if found else ""
