"""Bad command lines and damaged files end with one line and exit code 2 and leave nothing behind; bad calls with an InputError."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from campaign.calls import random_call
from campaign.corpus import Prepared, prepare, random_input
from campaign.loaded import loaded
from campaign.outcome import Outcome
from campaign.servers import served

LIMIT = 30  # seconds for one of them
BAR = "━"  # of a progress bar, which has a line of its own


def check(seed: int, number: int, forks: Any, prepared: Prepared, place: Path) -> Outcome:
    outcome = Outcome()
    about = {"again": f"{seed}:{number}", "part": "inputs"}
    if number % 2:
        _call(seed, number, forks, place, about, outcome)
    else:
        _input(seed, number, forks, prepared, place, about, outcome)
    return outcome


def _call(seed: int, number: int, forks: Any, place: Path, about: dict[str, Any], outcome: Outcome) -> None:
    call = random_call(seed, number)
    ended = forks.run(call.source, watch=place, seconds=LIMIT)
    outcome.counts["calls"] += 1
    wrong = call.verdict(ended.code, ended.said)
    if wrong is not None:
        what = f"{call.about['call']}: {call.about['argument']} {call.about['is']}"
        detail = f"{what}: {(ended.said or ended.complained[-200:]).strip()[:250]}"
        outcome.violation(f"call: {wrong}", detail, settings=call.about, **about)


def _input(seed: int, number: int, forks: Any, prepared: Prepared, place: Path, about: dict[str, Any], outcome: Outcome) -> None:
    with tempfile.TemporaryDirectory(dir=place) as folder:
        bad = random_input(seed, number, prepared, Path(folder))
        before = listing(Path(folder))
        began = time.monotonic()
        ended = forks.run(bad.command, watch=Path(folder), seconds=LIMIT)
        took = time.monotonic() - began
        after = listing(Path(folder))
    outcome.counts.update(["inputs", f"kind/{bad.kind}"])
    lines = [line for line in ended.complained.splitlines() if line.strip() and BAR not in line]
    settings = {"kind": bad.kind, "command": [str(each).replace(folder, "FOLDER") for each in bad.command]}
    say = lambda kind, detail: outcome.violation(f"input: {kind}", f"{bad.what}: {detail}"[:400], settings=settings, **about)  # noqa: E731
    last = lines[-1].replace(folder, "FOLDER") if lines else ""
    if took >= LIMIT:
        say("takes more than half a minute", last)
    elif ended.code < 0:
        say(f"ended by signal {-ended.code}", last)
    elif "Traceback" in ended.complained:
        say("traceback", last)
    elif ended.code == 0:
        say("accepted", "exit code 0")
    elif ended.code != 2:
        say(f"exit code {ended.code}", last)
    elif len(lines) != 1:
        say("not one line" if lines else "no message", f"{len(lines)} lines: {last}")
    if ended.code != 0 and after != before:
        say("leaves something behind", ", ".join(sorted(after ^ before))[:200])


def listing(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def run(seed: int, seconds: float, device: str, workers: int | None, first: int) -> Iterator[tuple[int, Outcome]]:
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        place = Path(folder)
        with loaded("tests/kills.py").Forks() as forks:
            prepared = prepare(forks, place)
        yield from served(lambda number, forks: check(seed, number, forks, prepared, place), workers, seconds, first)


def again(seed: int, number: int, device: str) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder, loaded("tests/kills.py").Forks() as forks:
        return check(seed, number, forks, prepare(forks, Path(folder)), Path(folder))
