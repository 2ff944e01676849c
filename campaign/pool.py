"""Work in processes of its own: a crash is found and told of, and what is not done when the time is over is left."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from campaign.outcome import Outcome

AHEAD = 2  # tasks that wait for each worker
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

Task = Callable[..., Outcome]


def default_workers(device: str) -> int:
    return os.cpu_count() or 1 if device == "cpu" else min(4, os.cpu_count() or 1)


def begin() -> None:
    """In every worker: one thread each, and Ctrl-C is for the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    torch.set_num_threads(1)


def spread(task: Task, arguments: tuple[Any, ...], workers: int, seconds: float, first: int = 0) -> Iterator[tuple[int, Outcome]]:
    """``task(seed, number, ...)`` for numbers from ``first`` on, until the time is over; a task that takes its process down is one
    outcome with a violation."""
    number, counted, until = first, 0, time.monotonic() + seconds
    os.environ.update(dict.fromkeys(THREADS, "1"), OMP_WAIT_POLICY="passive")
    context = multiprocessing.get_context("spawn")
    while time.monotonic() < until:
        pool = ProcessPoolExecutor(workers, context, initializer=begin)
        waiting: dict[Future[Outcome], int] = {}
        lost: list[int] = []
        try:
            while (time.monotonic() < until or not counted) and not lost:
                while len(waiting) < AHEAD * workers and (time.monotonic() < until or not waiting):
                    waiting[pool.submit(task, arguments[0], number, *arguments[1:])] = number
                    number += 1
                done, _ = wait(waiting, 1.0, FIRST_COMPLETED)
                if not done and counted and time.monotonic() > until:
                    return  # what is under way is left
                for future in done:
                    which = waiting.pop(future)
                    failure = future.exception()
                    if failure is None:
                        counted += 1
                        yield which, future.result()
                    elif isinstance(failure, BrokenProcessPool):
                        lost += [which, *waiting.values()]
                        waiting.clear()
                        break
                    else:
                        raise failure
        finally:
            _stop(pool)
        for which in sorted(set(lost)):  # one of them took the process down: each again, in a process of its own
            yield which, alone(task, arguments, which)


def _stop(pool: ProcessPoolExecutor) -> None:
    workers = list((pool._processes or {}).values())  # none after a crash
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.kill()


def alone(task: Task, arguments: tuple[Any, ...], number: int) -> Outcome:
    """A task in a process of its own; its end by a signal is a violation."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, task, (arguments[0], number, *arguments[1:])))
    process.start()
    sender.close()
    try:
        outcome: Outcome = receiver.recv()
    except EOFError:
        process.join()
        outcome = Outcome()
        about = {"again": f"{arguments[0]}:{number}", "part": task.__module__.rpartition(".")[2], "device": arguments[-1]}
        outcome.violation(f"process ended by signal {-(process.exitcode or 0)}", "", **about)
    process.join()
    return outcome


def _send(sender: Any, task: Task, arguments: tuple[Any, ...]) -> None:
    begin()
    sender.send(task(*arguments))
