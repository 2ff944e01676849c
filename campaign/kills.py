"""Kills at every file operation and at random moments; what goes on afterwards has to end as if nothing had happened."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from campaign.compare import differences
from campaign.loaded import loaded
from campaign.outcome import Outcome
from campaign.servers import served
from campaign.shapes import pick
from campaign.works import Work, data_command, works

SIGNALS = {"SIGKILL": (-9,), "SIGTERM": (143, -15), "SIGINT": (130,)}
LIMIT = 120  # seconds for a command that takes one
PARALLEL, SELDOM = 12.0, 0.1  # seconds in which a work in several processes is struck; it takes long to begin
MARK = "CAMPAIGN_KILL"  # a variable by which processes that were left behind are found

MOMENT = """
import os, signal, threading, time
os.environ[{mark!r}] = {name!r}
def strike():
    time.sleep({delay})
    os.kill({pid}, signal.{signal})
threading.Thread(target=strike, daemon=True).start()
"""
OPERATION = """
import os, signal
import __main__
os.environ[{mark!r}] = {name!r}
def step(self, *arguments, before=__main__.Injection.step, **named):
    if self.count + 1 == {at}:
        os.kill(os.getpid(), signal.{signal})
    before(self, *arguments, **named)
__main__.Injection.step = step
"""


@dataclass(frozen=True)
class Done:
    """A work that nobody interrupted."""

    work: Work
    folder: Path
    operations: int
    seconds: float


@dataclass(frozen=True)
class Plan:
    """How a work is killed, once or several times in a row."""

    done: Done
    strikes: tuple[tuple[str, str, float], ...]  # signal or "full", "operation" or "moment", which or when

    def describe(self) -> dict[str, Any]:
        return {"work": self.done.work.name, "strikes": [list(strike) for strike in self.strikes]}


def references(forks: Any, place: Path) -> list[Done]:
    """Every work, once, to its end."""
    networks = place / "networks"
    made: list[Done] = []
    ended = forks.run(list(data_command(networks)), watch=place)
    assert ended.code == 0, ended.complained
    for work in works(networks, place / "train"):
        if work.same_as is not None:
            (other,) = [each for each in made if each.work.name == work.same_as]
            made.append(Done(work, other.folder, 0, PARALLEL))
            continue
        folder, began = place / work.name.replace(" ", "-").replace(",", ""), time.monotonic()
        ended = forks.run(work.source(folder, False), watch=folder)
        assert ended.code == 0, f"{work.name}: {ended.complained}"
        made.append(Done(work, folder, ended.operations, time.monotonic() - began))
    return made


def planned(seed: int, number: int, done: list[Done]) -> Plan:
    """First SIGKILL at each operation of each work, in a random order; then anything."""
    every = [(each, at) for each in done for at in range(1, each.operations + 1)]
    order = np.random.default_rng(seed).permutation(len(every))
    draw = np.random.default_rng([seed, number])
    sweeping = number % 2 == 0 and number // 2 < len(every)
    if sweeping or draw.random() < 0.2:
        each, at = every[order[number // 2 % len(every)]]
        return Plan(each, (("SIGKILL", "operation", at),))
    each = pick(draw, tuple(done), tuple(1.0 if each.operations else SELDOM for each in done))
    return Plan(each, tuple(_strike(draw, each) for _ in range(pick(draw, (1, 2, 3), (5, 2, 1)))))


def _strike(draw: Generator, each: Done) -> tuple[str, str, float]:
    what = pick(draw, (*SIGNALS, "full"), (3, 3, 3, 1))
    if not each.operations:  # what its processes do is not counted
        return what if what != "full" else "SIGTERM", "moment", round(float(draw.uniform(0.1, each.seconds)), 3)
    if what == "full" or draw.random() < 0.4:
        return what, "operation", int(draw.integers(1, each.operations + 1))
    return what, "moment", round(float(draw.uniform(0.1, max(each.seconds, 0.2))), 3)


def check(plan: Plan, forks: Any, out: Path, again: dict[str, Any]) -> Outcome:
    """Strike, go on, compare."""
    outcome = Outcome()
    work, about = plan.done.work, {**again, "part": "kills", "settings": plan.describe()}
    say = lambda kind, detail="": outcome.violation(f"{work.name}: {kind}", detail, **about)  # noqa: E731
    for number, (what, when, which) in enumerate(plan.strikes):
        ended = _struck(forks, work, out, number > 0, what, when, which)
        _count(outcome, what, ended.code, work)
        finished = ended.code == 0 and not differences(out, plan.done.folder)
        allowed = SIGNALS.get(what, (2,))
        if not finished and ended.code not in allowed:
            say(f"{what} ends it with exit code {ended.code}", _last(ended.complained))
        if "Traceback" in ended.complained:
            say(f"traceback after {what}", _last(ended.complained))
        if what != "SIGKILL" and (left := _left_behind(f"{out.name}-{number > 0}")):
            say(f"{what} leaves processes behind", f"{len(left)}")
    ended = forks.run(work.source(out, True), watch=out, seconds=LIMIT)
    if ended.code != 0:
        say(f"cannot be resumed: exit code {ended.code}", _last(ended.complained))
    elif wrong := differences(out, plan.done.folder):
        say("resumed, and " + _general(wrong[0]), "; ".join(wrong))
    return outcome


def _struck(forks: Any, work: Work, out: Path, resumes: bool, what: str, when: str, which: float) -> Any:
    name = f"{out.name}-{resumes}"
    if what == "full":
        return forks.run(work.source(out, resumes), watch=out, at=int(which), fault="full", seconds=LIMIT)
    if when == "operation" and what == "SIGKILL":
        return forks.run(work.source(out, resumes), watch=out, at=int(which), seconds=LIMIT)
    facts = {"mark": MARK, "name": name, "signal": what}
    prelude = (
        OPERATION.format(at=int(which), **facts) if when == "operation" else MOMENT.format(delay=which, pid="os.getpid()", **facts)
    )
    return forks.run(work.source(out, resumes, prelude), watch=out, seconds=LIMIT)


def _count(outcome: Outcome, what: str, code: int, work: Work) -> None:
    hit = code in SIGNALS.get(what, ()) or (what == "SIGTERM" and code == 0)
    outcome.counts[f"work/{work.name}"] += 1
    if what == "full":
        outcome.counts["full disks"] += 1
    elif hit:
        outcome.counts.update(["kills", f"signal/{what}"])
    else:
        outcome.counts["over before the signal"] += 1


def _left_behind(name: str) -> list[int]:
    """Processes of a command that has ended; they are ended too."""
    found = []
    time.sleep(0.3)
    for entry in Path("/proc").iterdir():
        try:
            marked = entry.name.isdigit() and f"{MARK}={name}".encode() in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if marked:
            found.append(int(entry.name))
            os.kill(int(entry.name), signal.SIGKILL)
    return found


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _general(line: str) -> str:
    """Without the numbers and names that only one run has."""
    return re.sub(r"[0-9a-f]{12,}|\d+", "*", line.split(" (")[0])


def run(seed: int, seconds: float, device: str, workers: int | None, first: int) -> Iterator[tuple[int, Outcome]]:
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        place = Path(folder)
        with loaded("tests/kills.py").Forks() as forks:
            done = references(forks, place)
        yield from served(lambda number, forks: _one(seed, number, done, forks, place), workers, seconds, first)


def _one(seed: int, number: int, done: list[Done], server: Any, place: Path) -> Outcome:
    out = place / f"out-{number}"
    outcome = check(planned(seed, number, done), server, out, {"again": f"{seed}:{number}"})
    shutil.rmtree(out, ignore_errors=True)
    return outcome


def again(seed: int, number: int, device: str) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder, loaded("tests/kills.py").Forks() as server:
        return _one(seed, number, references(server, Path(folder)), server, Path(folder))
