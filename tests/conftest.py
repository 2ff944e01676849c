"""What every test shares: how hypothesis searches, which tests need a GPU, and how many threads a worker may use."""

from __future__ import annotations

import os
import signal

if hasattr(signal, "SIGHUP"):  # a test run under nohup, whose processes would not hear it
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
if "PYTEST_XDIST_WORKER" in os.environ:
    # Before torch and numpy load: the workers divide the cores among themselves. Numba keeps its threads, because its
    # kernels go parallel on large inputs only and those tests are there to see them run in parallel.
    share = str(max(1, (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])))
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, share)

import pytest
import torch
from hypothesis import settings

# ci: the same examples on every run and every machine. explore: new ones each time (HYPOTHESIS_PROFILE=explore).
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True, database=None)
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if item.get_closest_marker("cuda"):
            item.add_marker(skip)
