"""Runs the jobs of experiments: side by side, each once, and none lost to an interrupt."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from convergent.errors import InputError
from convergent.experiments.experiment import Experiment
from convergent.experiments.job import Job
from convergent.experiments.learning import SHARED
from convergent.training.run import write_json

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
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
    waiting = {job.key: job for job in jobs if not job.done(plan.jobs)}
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
            write_json(path, experiment.report({job.key: job.result(plan.jobs) for job in done}))
            found[experiment.name] = path
    return found


def _finished(jobs: list[Job], plan: Plan) -> Iterator[tuple[Job, BaseException | None]]:
    """Jobs as they end, with what went wrong."""
    if plan.workers <= 1:
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
    others = multiprocessing.active_children()  # the caller's
    with (
        tempfile.TemporaryDirectory() as shared,
        _environment(plan.threads, shared),
        ProcessPoolExecutor(plan.workers, context, initializer=_begin, initargs=(plan.threads,)) as pool,
    ):
        futures: dict[Future[None], Job] = {pool.submit(job.run, plan.jobs, plan.device): job for job in jobs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.exception()
        except BaseException:
            for process in multiprocessing.active_children():
                if process not in others:
                    process.kill()  # what they wrote is whole; a training takes SIGTERM as a wish, and the next job would follow
            raise


@contextmanager
def _environment(threads: int, shared: str) -> Iterator[None]:
    """What processes started within it find: libraries read the number of their threads when they are loaded, once."""
    found = {**dict.fromkeys(THREADS, str(threads)), "OMP_WAIT_POLICY": "passive", SHARED: shared}
    before = {name: os.environ.get(name) for name in found}
    os.environ.update(found)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _begin(threads: int) -> None:
    import signal

    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it and tells the others
    torch.set_num_threads(threads)
