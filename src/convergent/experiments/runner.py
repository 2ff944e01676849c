"""Runs the jobs of experiments: side by side, each once, and none lost to an interrupt.

Several processes may work in one folder. Each job is locked while it is run, and its result is there for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from pathlib import Path

from convergent.errors import InputError
from convergent.experiments.experiment import Experiment
from convergent.experiments.job import Job
from convergent.experiments.workers import pool, work
from convergent.storage.files import remove_parts, write_json
from convergent.storage.lock import InUse, lock_file

JOBS = "jobs"  # the folder of single results, beside those of experiments


@dataclass(frozen=True)
class Plan:
    """Where results go and what does the work."""

    out: Path
    device: str = "cpu"
    workers: int = 1  # none: what there is is put together, and nothing is run
    threads: int = 1  # of every worker

    @property
    def jobs(self) -> Path:
        return self.out / JOBS


@dataclass
class Progress:
    """How far it is; ``tell`` is called after every change."""

    total: int
    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # why, by title
    tell: Callable[[Progress, Job | None], None] = lambda *_: None

    def add(self, job: Job, failure: BaseException | None = None) -> None:
        self.done += 1
        if failure is not None:
            self.failed[job.title] = f"{type(failure).__name__}: {failure}"
        self.tell(self, job)


def run(experiments: Sequence[Experiment], plan: Plan, tell: Callable[[Progress, Job | None], None] | None = None) -> list[Path]:
    """Do what is not done yet, and write NAME.json of every experiment whose jobs are all there, or whose table can do without.

    Raises:
        InputError: some jobs failed. The others are kept, and a second call tries only those again.
    """
    plan.out.mkdir(parents=True, exist_ok=True)
    jobs = [job for experiment in experiments for job in experiment.jobs()] if plan.workers else []
    waiting = {}
    for job in jobs:
        if job.done(plan.jobs):
            job.clear(plan.jobs)
        else:
            waiting[job.key] = job
    progress = Progress(len(waiting))
    progress.tell = tell or progress.tell
    progress.tell(progress, None)
    written: dict[str, Path] = {}
    try:
        for job, failure in _finished(list(waiting.values()), plan):
            progress.add(job, failure)
            written |= _write_ready(experiments, plan, written)
    finally:
        written |= _write_ready(experiments, plan, written, partial=True)
    if progress.failed:
        reasons = "; ".join(f"{title}: {reason}" for title, reason in list(progress.failed.items())[:3])
        raise InputError(
            f"{len(progress.failed)} of {progress.total} jobs failed ({reasons}); run the same command to try them again"
        )
    return list(written.values())


def _write_ready(experiments: Sequence[Experiment], plan: Plan, written: dict[str, Path], partial: bool = False) -> dict[str, Path]:
    found = {}
    for experiment in experiments:
        jobs = experiment.jobs()
        done = [job for job in jobs if job.done(plan.jobs)]
        enough = len(done) == len(jobs) or (partial and experiment.partial and done)
        if experiment.name not in written and enough:
            path = plan.out / f"{experiment.name}.json"
            report = experiment.report({job.key: job.result(plan.jobs) for job in done})
            with lock_file(path.with_name(f".{path.name}.lock"), str(path), wait=True):
                remove_parts(plan.out, path.name)
                write_json(path, report)
            found[experiment.name] = path
    return found


def _finished(jobs: list[Job], plan: Plan) -> Iterator[tuple[Job, BaseException | None]]:
    """Jobs as they end, with what went wrong. Those that another process is at come last, and are waited for."""
    if plan.workers <= 1:
        yield from _in_turn(jobs, plan)
        return
    with pool(plan.workers, plan.threads) as executor:
        waiting, wait = jobs, False
        while waiting:
            futures = {executor.submit(work, job, plan.jobs, plan.device, wait): job for job in waiting}
            waiting, wait = [], True
            for future in as_completed(futures):
                if isinstance(failure := future.exception(), InUse):
                    waiting.append(futures[future])
                else:
                    yield futures[future], failure


def _in_turn(jobs: list[Job], plan: Plan) -> Iterator[tuple[Job, BaseException | None]]:
    waiting, wait = jobs, False
    while waiting:
        now, waiting = waiting, []
        for job in now:
            try:
                job.run(plan.jobs, plan.device, wait)
            except InUse:
                waiting.append(job)
            except Exception as failure:
                yield job, failure
            else:
                yield job, None
        wait = True
