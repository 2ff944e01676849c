"""Processes that run jobs side by side, and that end when the one that started them does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

from convergent.experiments.job import Job
from convergent.experiments.learning import SHARED
from convergent.training.signals import exit_code

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
GRACE = 20.0  # seconds in which a training that is told to end can finish its step


@contextmanager
def pool(workers: int, threads: int) -> Iterator[ProcessPoolExecutor]:
    """Workers, each with its threads. When the block fails or is stopped, trainings keep their step, and everything else ends."""
    # spawned, not forked: threads of numba and CUDA do not survive a fork
    context = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()  # the caller's
    with (
        tempfile.TemporaryDirectory() as shared,
        environment(threads, shared),
        ProcessPoolExecutor(workers, context, initializer=begin, initargs=(threads,)) as executor,
    ):
        try:
            yield executor
        except BaseException:
            end([process for process in multiprocessing.active_children() if process not in others])
            raise


def end(processes: Iterable[BaseProcess], grace: float = GRACE) -> None:
    """Tell processes to end, and kill those that have not done so after some time, or at once when this is stopped too."""
    waiting = list(processes)
    try:
        for process in waiting:
            process.terminate()
        deadline = time.monotonic() + grace
        while any(process.is_alive() for process in waiting) and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        for process in waiting:
            process.kill()


@contextmanager
def environment(threads: int, shared: str) -> Iterator[None]:
    """What processes started within it find: libraries read the number of their threads when they are loaded, once."""
    found = {**dict.fromkeys(THREADS, str(threads)), "OMP_WAIT_POLICY": "passive", SHARED: shared}
    before = {name: os.environ.get(name) for name in found}
    os.environ.update(found)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


# --- in the worker ---


def begin(threads: int) -> None:
    for name in ("SIGINT", "SIGHUP"):  # of the terminal: the parent hears them and tells the others
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda signum, _: os._exit(128 + signum))  # but within a training, which keeps its step
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()

    import torch

    torch.set_num_threads(threads)


def _end_with(parent: BaseProcess) -> None:
    """A parent that is killed can tell nobody, but the pipe to it closes."""
    parent.join()
    os._exit(1)


def work(job: Job, *arguments: object) -> None:
    """Run a job; a training that was told to end is the last thing that this process does.

    Raises:
        InUse: another process is at it.
    """
    try:
        job.run(*arguments)  # type: ignore[arg-type]
    except KeyboardInterrupt as stop:
        os._exit(exit_code(stop))
