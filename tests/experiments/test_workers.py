"""Workers: they end with the process that started them, and a training keeps its step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from convergent.experiments import workers
from convergent.training.run import CHECKPOINT, METRICS

ROOT = Path(__file__).parents[2]

# Two endless trainings and what would follow them, as `convergent reproduce` runs them.
ENDLESS = """
import sys
from pathlib import Path
from convergent.cli import app
from convergent.experiments import runner
from convergent.experiments.job import Job
from convergent.experiments.value_iteration import ValueIteration

config = {**ValueIteration(quick=True).jobs()[0].settings["config"], "steps": 1_000_000, "graphs": 2}
jobs = [Job(f"endless {seed}", "learning:learn", {"config": {**config, "seed": seed}}) for seed in range(3)]

@app.app.command()
def endless(out: Path) -> None:
    kind = type("Endless", (), {"name": "endless", "partial": False, "jobs": lambda self: jobs})
    runner.run([kind()], runner.Plan(out, workers=2))

if __name__ == "__main__":
    sys.argv[1:1] = ["endless"]
    app.main()
"""


def running(parent: int) -> list[int]:
    """The processes that descend from one."""
    found, waiting = [], [parent]
    while waiting:
        children = Path(f"/proc/{waiting[0]}/task/{waiting.pop(0)}/children")
        new = [int(pid) for pid in children.read_text().split()] if children.exists() else []
        found, waiting = [*found, *new], [*waiting, *new]
    return found


def lives(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def wait_until(condition, seconds: float = 120) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


@pytest.fixture
def endless(tmp_path) -> Iterator[subprocess.Popen]:
    """A process with two workers, each in the middle of a training."""
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(script), str(tmp_path / "out")]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert wait_until(lambda: process.poll() is not None or len(list(tmp_path.glob(f"out/jobs/*.part/{METRICS}"))) == 2)
    assert process.poll() is None, process.communicate()[1]
    yield process
    process.kill()
    process.communicate()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="it looks for processes in /proc")
def test_workers_end_with_a_parent_that_is_killed(endless) -> None:
    children = running(endless.pid)
    assert len(children) >= 2
    endless.kill()
    assert wait_until(lambda: not any(map(lives, children)), 20)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="it looks for processes in /proc")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_keeps_the_steps_of_trainings_and_ends_all(endless, tmp_path, signum) -> None:
    children = running(endless.pid)
    time.sleep(1)
    endless.send_signal(signum)
    complained = endless.communicate(timeout=60)[1]
    assert endless.returncode == 128 + signum, complained
    assert "Traceback" not in complained
    assert wait_until(lambda: not any(map(lives, children)), 5)
    kept = list(tmp_path.glob(f"out/jobs/*.part/{CHECKPOINT}"))
    assert len(kept) == 2  # and the third job was not begun
    steps = [torch.load(file, weights_only=True)["global_step"] for file in kept]
    assert any(step % 100 for step in steps), steps  # not only where a checkpoint was due


class Deaf:
    """A process that does not end when it is told to."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def terminate(self) -> None:
        self.heard.append("terminate")

    def kill(self) -> None:
        self.heard.append("kill")

    def is_alive(self) -> bool:
        return "kill" not in self.heard


def test_what_does_not_end_is_killed() -> None:
    process = Deaf()
    began = time.monotonic()
    workers.end([process], grace=0.3)  # type: ignore[list-item]
    assert process.heard == ["terminate", "kill"]
    assert 0.3 <= time.monotonic() - began < 5


def test_a_second_signal_kills_at_once(monkeypatch) -> None:
    def stopped(_: float) -> None:
        raise KeyboardInterrupt

    process = Deaf()
    monkeypatch.setattr(workers.time, "sleep", stopped)
    with pytest.raises(KeyboardInterrupt):
        workers.end([process])  # type: ignore[list-item]
    assert process.heard == ["terminate", "kill"]


def test_processes_have_the_threads_that_they_are_given() -> None:
    before = dict(os.environ)
    told = "import numba, torch; print(numba.get_num_threads(), torch.get_num_threads())"
    with workers.environment(1, "folder"):
        assert subprocess.check_output([sys.executable, "-c", told], text=True).split() == ["1", "1"]
    assert dict(os.environ) == before
