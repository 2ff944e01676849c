"""Jobs, experiments and the runner, with work that takes no time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convergent.errors import InputError
from convergent.experiments import learning, runner, value_iteration
from convergent.experiments.experiment import Experiment, Results, Statement
from convergent.experiments.job import Job
from convergent.experiments.runner import Plan
from convergent.experiments.value_iteration import ValueIteration
from convergent.storage.lock import InUse, lock_file
from convergent.training.keeper import Keeper
from convergent.training.run import METRICS, read_json
from kills import Forks, contents


def job(number: int, work: str = "value_iteration:floor") -> Job:
    return Job(f"job {number}", work, {"seed": number, "columns": [[6 + number, 2]], "graphs": 2})


class Small(Experiment):
    title = "Two floors"
    deviations = ("It is not in the paper.",)

    def jobs(self) -> list[Job]:
        return [job(0), job(1)]

    def table(self, results: Results) -> dict[str, Any]:
        return {"rows": {each.title: results[each.key]["result"]["policy_accuracy"] for each in self.jobs()}}

    def statements(self, table: dict[str, Any]) -> list[Statement]:
        return [Statement("there are two rows", len(table["rows"]) == 2, str(len(table["rows"])))]


@pytest.fixture
def small() -> Small:
    kind = type("Named", (Small,), {"name": "small"})
    Experiment.kinds.pop("small")
    return kind()


def test_a_job_is_known_by_what_it_does() -> None:
    assert job(0).key == Job("another title", job(0).work, dict(reversed(job(0).settings.items()))).key
    assert len({job(0).key, job(1).key, job(0, "value_iteration:other").key}) == 3


def test_results_are_written_with_their_origin(small: Small, tmp_path: Path) -> None:
    (path,) = runner.run([small], Plan(tmp_path))
    report = read_json(path)
    assert path == tmp_path / "small.json"
    assert report["seeds"] == [0, 1]
    assert report["statements"] == [{"text": "there are two rows", "holds": True, "evidence": "2"}]
    assert report["deviations"] == ["It is not in the paper."]
    assert report["machines"][0]["device"] == "cpu"
    assert set(report["jobs"]) == {job(0).key, job(1).key}
    single = read_json(job(0).place(tmp_path / runner.JOBS))
    assert single["settings"] == job(0).settings
    assert 0 <= single["result"]["policy_accuracy"][0][0] <= 1


def test_a_finished_job_is_not_run_again(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner.run([small], Plan(tmp_path))
    monkeypatch.setattr(Job, "run", lambda *_: pytest.fail("it was run again"))
    told: list[int] = []
    runner.run([small], Plan(tmp_path), lambda progress, _: told.append(progress.total))
    assert told == [0]


def test_a_failure_is_told_and_the_others_are_kept(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Job("a broken job", "value_iteration:floor", {"columns": [[1, 5]], "graphs": 1})
    monkeypatch.setattr(type(small), "jobs", lambda _: [broken, job(1)])
    with pytest.raises(InputError, match=r"1 of 2 jobs failed \(a broken job: InputError: actions"):
        runner.run([small], Plan(tmp_path))
    assert job(1).done(tmp_path / runner.JOBS)
    assert not (tmp_path / "small.json").exists()


def test_processes_side_by_side_find_the_same(small: Small, tmp_path: Path) -> None:
    tables = []
    for workers in (1, 2):
        (path,) = runner.run([small], Plan(tmp_path / str(workers), workers=workers))
        tables.append(read_json(path)["table"])
    assert tables[0] == tables[1]


class Patient(Small):
    """Makes do with what there is."""

    partial = True

    def table(self, results: Results) -> dict[str, Any]:
        return {"rows": {each.title: each.key in results for each in self.jobs()}}


def test_some_tables_do_without_what_is_missing(tmp_path: Path) -> None:
    plan = Plan(tmp_path, workers=0)
    kind = type("Named", (Patient,), {"name": "patient"})
    Experiment.kinds.pop("patient")
    assert runner.run([kind()], plan) == []  # of nothing no table is made
    job(1).run(plan.jobs, "cpu")
    (path,) = runner.run([kind()], plan)
    report = read_json(path)
    assert report["table"]["rows"] == {"job 0": False, "job 1": True}
    assert report["missing"] == ["job 0"]
    assert set(report["jobs"]) == {job(1).key}
    assert not job(0).done(plan.jobs)


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Ctrl-C is heard, also where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_ends_trainings_and_what_would_follow(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {**ValueIteration(quick=True).jobs()[0].settings["config"], "steps": 1_000_000}
    endless = [Job(f"endless {seed}", "learning:learn", {"config": {**config, "seed": seed}}) for seed in range(2)]
    monkeypatch.setattr(type(small), "jobs", lambda _: [*endless, job(0)])
    plan = Plan(tmp_path, workers=2)

    def interrupt() -> None:
        deadline = time.monotonic() + 100
        while len(list(plan.jobs.glob(f"*.part/{METRICS}"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        runner.run([small], plan)
    assert len(list(plan.jobs.glob(f"*.part/{METRICS}"))) == 2  # to go on from
    assert not job(0).done(plan.jobs)
    assert not multiprocessing.active_children()


def test_work_finds_what_it_left_when_it_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(settings: dict[str, Any], device: str, scratch: Path) -> dict[str, Any]:
        scratch.mkdir(parents=True, exist_ok=True)
        (scratch / str(len(list(scratch.iterdir())))).touch()
        if len(list(scratch.iterdir())) < 3:
            raise KeyboardInterrupt
        return {"times": len(list(scratch.iterdir()))}

    monkeypatch.setattr(value_iteration, "floor", count)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            job(0).run(tmp_path, "cpu")
    monkeypatch.setenv("COMMIT", "another")
    with pytest.raises(KeyboardInterrupt):  # code that may be different begins anew
        job(0).run(tmp_path, "cpu")
    monkeypatch.delenv("COMMIT")
    job(0).run(tmp_path, "cpu")
    assert job(0).result(tmp_path)["result"] == {"times": 3}
    assert list(tmp_path.iterdir()) == [job(0).place(tmp_path)]


def test_a_training_goes_on_in_a_second_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (training, *_) = ValueIteration(quick=True).jobs()
    steps = training.settings["config"]["steps"]
    whole = learning.learn(training.settings, "cpu", tmp_path / "whole")
    begun = []

    def interrupt(self: Keeper, trainer: Any, *arguments: Any) -> None:
        begun.append(trainer.global_step)
        if trainer.global_step == steps // 2 and len(begun) == steps // 2:
            self.stop(signal.SIGTERM)
        after_step(self, trainer, *arguments)

    after_step = Keeper.on_train_batch_end
    monkeypatch.setattr(Keeper, "on_train_batch_end", interrupt)
    with pytest.raises(KeyboardInterrupt):
        learning.learn(training.settings, "cpu", tmp_path / "cut")
    resumed = learning.learn(training.settings, "cpu", tmp_path / "cut")
    assert begun == list(range(1, steps + 1))
    assert resumed["tests"] == whole["tests"]


# --- several processes in one folder ---


def test_a_job_that_another_process_is_at_is_waited_for(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(tmp_path)
    place = plan.jobs / f".{job(0).key}.lock"
    ran: list[str] = []
    floor = value_iteration.floor
    monkeypatch.setattr(value_iteration, "floor", lambda settings, *rest: ran.append(settings["seed"]) or floor(settings, *rest))

    def other() -> None:
        """Another process, which ends without a result once job 1 is done here."""
        with lock_file(place, "the other"):
            held.set()
            deadline = time.monotonic() + 60
            while not job(1).done(plan.jobs) and time.monotonic() < deadline:
                time.sleep(0.05)

    held = threading.Event()
    thread = threading.Thread(target=other)
    thread.start()
    held.wait()
    with pytest.raises(InUse, match=r"job 0 .*in use by another process"):
        job(0).run(plan.jobs, "cpu")
    runner.run([small], plan)
    thread.join()
    assert ran == [1, 0]  # the one that was free first
    assert not place.exists()


def test_a_result_that_came_meanwhile_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(0).run(tmp_path, "cpu")
    monkeypatch.setattr(value_iteration, "floor", lambda *_: pytest.fail("it was run again"))
    job(0).run(tmp_path, "cpu")


def test_two_commands_in_one_folder_share_their_jobs(tmp_path: Path) -> None:
    jobs = [Job(f"job {seed}", "value_iteration:floor", {"seed": seed, "columns": [[6, 2]], "graphs": 2}) for seed in range(8)]
    code = f"""
import sys
from pathlib import Path
from convergent.experiments import runner, value_iteration
from convergent.experiments.job import Job
floor = value_iteration.floor
def told(settings, *rest):
    print(settings["seed"], flush=True)
    return floor(settings, *rest)
value_iteration.floor = told
jobs = [Job(*each) for each in {[(each.title, each.work, each.settings) for each in jobs]!r}]
names = {{"name": "shared", "partial": False, "jobs": lambda _: jobs, "report": lambda _, found: sorted(found)}}
experiment = type("Shared", (), names)()
runner.run([experiment], runner.Plan(Path({str(tmp_path)!r})))
"""
    command = [sys.executable, "-c", code]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    found = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], found
    assert sorted(line for said, _ in found for line in said.split()) == sorted(str(seed) for seed in range(8))  # each once
    assert read_json(tmp_path / "shared.json") == sorted(each.key for each in jobs)


def test_killed_at_every_file_operation_and_run_again(tmp_path: Path) -> None:
    """A job whose work keeps its state in a folder, which is gone in the end."""
    code = """
from pathlib import Path
from convergent.experiments import runner, value_iteration
from convergent.experiments.job import Job
from convergent.storage.files import read_json, write_json
def count(settings, device, scratch):
    for number in range(3):
        if not (scratch / f"{{number}}.json").exists():
            scratch.mkdir(parents=True, exist_ok=True)
            write_json(scratch / f"{{number}}.json", number)
    return {{"sum": sum(read_json(scratch / f"{{number}}.json") for number in range(3))}}
value_iteration.floor = count
jobs = [Job("a job", "value_iteration:floor", {{"seed": 0}})]
experiment = type("Counted", (), {{"name": "counted", "partial": False, "jobs": lambda _: jobs,
    "report": lambda _, found: [each["result"] for each in found.values()]}})()
runner.run([experiment], runner.Plan(Path({out!r})))
"""
    with Forks(["convergent.experiments.value_iteration"]) as forks:
        whole = forks.run(code.format(out=str(tmp_path / "whole")), tmp_path / "whole")
        assert whole.code == 0, whole.complained
        wanted = contents(tmp_path / "whole")
        for number in range(1, whole.operations + 1):
            out = tmp_path / str(number)
            assert forks.run(code.format(out=str(out)), out, at=number).code == -9
            again = forks.run(code.format(out=str(out)), out)
            assert again.code == 0, again.complained
            left = [name for name in contents(out) if not name.endswith(".lock")]  # of a process that was killed when all was done
            assert left == list(wanted), number
            assert read_json(out / "counted.json") == [{"sum": 3}]
        assert whole.operations > 20
