"""The most memory that a call needs beyond what was there before it, and a limit on it.

On a GPU torch counts what it hands out. On the CPU it is Linux's VmHWM, how far the resident memory of the whole process rose,
whoever asked for it (torch, numpy or numba); other systems have no such number.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch

T = TypeVar("T")
GIBIBYTE = 2**30
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
REFUSALS = ("allocate", "alloc_failed", "malloc", "out of memory")  # not "memory": an illegal access to it is a mistake
LEAVE = 0.8  # of the memory that is free: the system and other processes keep the rest


def peak(work: Callable[[], T], device: str) -> tuple[T, int | None]:
    """What came out, and bytes; None: this system does not say."""
    if torch.device(device).type == "cuda":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        result = work()
        torch.cuda.synchronize(device)
        return result, torch.cuda.max_memory_allocated(device) - before
    if not CLEAR.exists():
        return work(), None
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what lies free in the heap would hide what is needed
    CLEAR.write_text("5")  # sets the high-water mark back
    before = _status("VmRSS")
    result = work()
    return result, max(0, _status("VmHWM") - before)


@contextmanager
def limited(device: str, gibibytes: float) -> Iterator[int | None]:
    """Within it a call that needs more than this, or than what is free, fails: on Linux and on a GPU. Yields the limit in bytes."""
    wanted = int(gibibytes * GIBIBYTE)
    if torch.device(device).type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        index = torch.device(device).index
        number = torch.cuda.current_device() if index is None else index  # a kind of device is not enough here
        torch.cuda.set_per_process_memory_fraction(min(1.0, wanted / total), number)
        try:
            yield min(wanted, total)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, number)
    elif CLEAR.exists():
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = min(wanted, int(LEAVE * _bytes(Path("/proc/meminfo"), "MemAvailable")))
        resource.setrlimit(resource.RLIMIT_DATA, (_status("VmData") + limit, hard))
        try:
            yield limit
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    else:
        yield None


def ran_out(error: BaseException) -> bool:
    """Whether it says that there is no memory left: torch on the CPU and libraries under it raise plain RuntimeErrors."""
    words = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(phrase in words for phrase in REFUSALS)


def _status(name: str) -> int:
    return _bytes(STATUS, name)


def _bytes(file: Path, name: str) -> int:
    return 1024 * int(next(line for line in file.read_text().splitlines() if line.startswith(name)).split()[1])
