"""Runs the jobs of experiments: side by side, each once, and none lost to an interrupt."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from convergent.errors import InputError
from convergent.experiments.experiment import Experiment
from convergent.experiments.job import Job
from convergent.experiments.learning import SHARED
from convergent.training.run import write_json

JOBS = "jobs"  # the folder of single results, beside those of experiments


@dataclass(frozen=True)
class Plan:
    """Where results go and what does the work."""

    out: Path
    device: str = "cpu"
    workers: int = 1
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
    """Do what is not done yet, and write NAME.json of every experiment whose jobs are all there.

    Raises:
        InputError: some jobs failed. The others are kept, and a second call tries only those again.
    """
    plan.out.mkdir(parents=True, exist_ok=True)
    waiting = {job.key: job for experiment in experiments for job in experiment.jobs() if not job.done(plan.jobs)}
    progress = Progress(len(waiting))
    progress.tell = tell or progress.tell
    progress.tell(progress, None)
    written: dict[str, Path] = {}
    for job, failure in _finished(list(waiting.values()), plan):
        progress.add(job, failure)
        written |= _write_ready(experiments, plan, written)
    written |= _write_ready(experiments, plan, written)
    if progress.failed:
        reasons = "; ".join(f"{title}: {reason}" for title, reason in list(progress.failed.items())[:3])
        raise InputError(
            f"{len(progress.failed)} of {progress.total} jobs failed ({reasons}); run the same command to try them again"
        )
    return list(written.values())


def _write_ready(experiments: Sequence[Experiment], plan: Plan, written: dict[str, Path]) -> dict[str, Path]:
    found = {}
    for experiment in experiments:
        jobs = experiment.jobs()
        if experiment.name not in written and all(job.done(plan.jobs) for job in jobs):
            path = plan.out / f"{experiment.name}.json"
            write_json(path, experiment.report({job.key: job.result(plan.jobs) for job in jobs}))
            found[experiment.name] = path
    return found


def _finished(jobs: list[Job], plan: Plan) -> Iterator[tuple[Job, BaseException | None]]:
    """Jobs as they end, with what went wrong."""
    if plan.workers == 1:
        for job in jobs:
            try:
                job.run(plan.jobs, plan.device)
            except Exception as failure:
                yield job, failure
            else:
                yield job, None
        return
    # spawned, not forked: threads of numba and CUDA do not survive a fork
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as shared,
        ProcessPoolExecutor(plan.workers, context, initializer=_begin, initargs=(plan.threads, shared)) as pool,
    ):
        futures: dict[Future[None], Job] = {pool.submit(job.run, plan.jobs, plan.device): job for job in jobs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.exception()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin(threads: int, shared: str) -> None:
    import signal

    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it and tells the others
    os.environ |= {"OMP_WAIT_POLICY": "passive", SHARED: shared}
    torch.set_num_threads(threads)
