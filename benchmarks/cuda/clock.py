"""Time and memory on a device. On the CPU, which has no launches to hide and counts no bytes, it is plain wall clock.

Whole calls are timed from a device at rest to a device at rest; kernels inside CUDA graphs, where nothing waits for Python.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.measure import Candidate, Timing, at_rest, clocked

REPEAT = 50  # milliseconds that one repeat inside a CUDA graph, of ten, takes


def wall_time(candidate: Candidate, device: str, repeats: int, warm: int = 2) -> Timing:
    resting = at_rest(candidate, device)
    seconds = [clocked(resting)[0] for _ in range(warm + repeats)]
    return Timing(seconds[warm:])


def kernel_time(work: Callable[[], Any], device: str) -> Timing:
    if device != "cuda":
        return wall_time(Candidate(lambda _: work()), device, 3)
    from triton.testing import do_bench_cudagraph

    return Timing([milliseconds / 1e3 for milliseconds in do_bench_cudagraph(work, rep=REPEAT, return_mode="all")])


def copy_time(numbers: int, device: str) -> Timing:
    """Not in a CUDA graph, where a copy is a transfer, which is slower than torch's kernel."""
    source, target = torch.empty(2, numbers, device=device)
    if device != "cuda":
        return wall_time(Candidate(lambda _: target.copy_(source)), device, 3)
    from triton.testing import do_bench

    return Timing([milliseconds / 1e3 for milliseconds in do_bench(lambda: target.copy_(source), rep=REPEAT, return_mode="all")])


def peak(work: Callable[[], Any], device: str) -> tuple[Any, int | None]:
    """What came out, and the most bytes that were allocated on the way, with all that was there before; None on the CPU."""
    if device != "cuda":
        return work(), None
    free(device)
    torch.cuda.reset_peak_memory_stats()
    result = work()
    torch.cuda.synchronize()
    return result, torch.cuda.max_memory_allocated()


def free(device: str) -> None:
    """Gives back what nobody holds any more."""
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
