"""One door to the kernels: which of the backends serves a tensor is decided here and nowhere else.

``reference`` is plain torch and serves every device. ``cpu`` is numba: it is imported when the first CPU tensor needs it,
and the reference serves where numba is missing. ``using("reference")`` holds every call to one backend, for tests and comparisons.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

from convergent.kernels.reference import SAFETY, Accuracy, Rows, Settled

__all__ = ["SAFETY", "Accuracy", "Rows", "Settled", "backend", "using"]

_forced: ContextVar[str | None] = ContextVar("convergent_backend", default=None)


@cache
def _load(name: str) -> ModuleType:
    return importlib.import_module(f"convergent.kernels.{name}")


@cache
def _has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def backend(tensor: Tensor) -> ModuleType:
    """The kernels that serve this tensor's device and dtype."""
    name = _forced.get()
    if name is None:
        fits = tensor.device.type == "cpu" and tensor.dtype not in (torch.float16, torch.bfloat16)
        name = "cpu" if fits and _has_numba() else "reference"
    return _load(name)


@contextmanager
def using(name: str) -> Iterator[None]:
    """Hold every kernel call in this block to one backend: "reference" or "cpu"."""
    token = _forced.set(name)
    try:
        yield
    finally:
        _forced.reset(token)
