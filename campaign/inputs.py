"""Bad command lines and damaged files, as tests/bad_input.py draws them, and bad calls of the library (calls.py).

Every one runs in a fork, so that a crash or an endless loop is no more than a violation. Even numbers are inputs, odd ones calls.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from campaign.calls import random_call
from campaign.loaded import ROOT, loaded
from campaign.outcome import Outcome
from campaign.servers import served

LIMIT = 60  # seconds for one of them

CORPUS = f"""
import sys
from pathlib import Path
sys.path[:0] = [{str(ROOT / "tests")!r}]
import bad_input
"""
PREPARE = CORPUS + "bad_input.playground(Path({ground!r}))\n"
# Cases made by hand come first, in a random order; then others are drawn.
CASE = (
    CORPUS
    + """
import random
cases = list(bad_input.CASES)
random.Random({seed}).shuffle(cases)
more = {number} - len(cases)
case = cases[{number}] if more < 0 else list(bad_input.drawn({seed}, more + 1))[more]
print(case, flush=True)
print("found", bad_input.violation(case, Path({ground!r}), Path({scratch!r})) or "")
"""
)


def check(seed: int, number: int, forks: Any, ground: Path, place: Path) -> Outcome:
    outcome = Outcome()
    about = {"again": f"{seed}:{number}", "part": "inputs"}
    if number % 2:
        _call(seed, number, forks, place, about, outcome)
    else:
        _input(seed, number, forks, ground, about, outcome)
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


def _input(seed: int, number: int, forks: Any, ground: Path, about: dict[str, Any], outcome: Outcome) -> None:
    with tempfile.TemporaryDirectory(dir=ground.parent) as folder:
        scratch = Path(folder) / "scratch"
        source = CASE.format(seed=seed, number=number // 2, ground=str(ground), scratch=str(scratch))
        ended = forks.run(source, watch=ground.parent, seconds=LIMIT)
    case, _, found = ended.said.replace(str(scratch), "FOLDER").partition("\nfound ")
    outcome.counts["inputs"] += 1
    wrong = _crash(ended.code, ended.complained) or found.strip()
    if wrong:
        outcome.violation(
            f"input: {classified(wrong)}", f"{case.strip()[:300]}: {wrong[:300]}", settings={"case": case.strip()}, **about
        )


def _crash(code: int, complained: str) -> str:
    """How the process itself ended, if not well."""
    if code == -9:
        return f"takes more than {LIMIT} s"
    if code < 0:
        return f"ended by signal {-code}"
    lines = [line for line in complained.splitlines() if line.strip()]
    return f"exit code {code}: {lines[-1] if lines else ''}" if code else ""


def classified(wrong: str) -> str:
    """Its class: the name of an exception, or what comes before the details."""
    if re.match(r"\w+(Error|Exception|Interrupt|Exit|Warning):", wrong):
        return f"traceback, {wrong.partition(':')[0]}"
    return wrong.partition(":")[0].partition(", but")[0]


def run(seed: int, seconds: float, device: str, workers: int | None, first: int) -> Iterator[tuple[int, Outcome]]:
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        ground = Path(folder) / "ground"
        with loaded("tests/kills.py").Forks() as forks:
            _prepare(forks, ground)
        yield from served(lambda number, forks: check(seed, number, forks, ground, Path(folder)), workers, seconds, first)


def _prepare(forks: Any, ground: Path) -> None:
    ended = forks.run(PREPARE.format(ground=str(ground)), watch=ground)
    assert ended.code == 0, ended.complained


def again(seed: int, number: int, device: str) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder, loaded("tests/kills.py").Forks() as forks:
        ground = Path(folder) / "ground"
        _prepare(forks, ground)
        return check(seed, number, forks, ground, Path(folder))
