"""One door to the kernels: which of the backends serves a tensor is decided here and nowhere else.

``reference`` is plain torch and serves every device. ``cpu`` is numba and ``cuda`` is Triton: each is imported when the first
tensor needs it, and the reference serves where it is missing. ``using("reference")`` holds every call to one backend, for tests
and comparisons.
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

from convergent.kernels.reference import ROOM, SAFETY, Accuracy, Rows, Settled, clear_of

__all__ = ["ROOM", "SAFETY", "Accuracy", "Rows", "Settled", "backend", "clear_of", "using"]

_forced: ContextVar[str | None] = ContextVar("convergent_backend", default=None)


@cache
def _load(name: str) -> ModuleType:
    return importlib.import_module(f"convergent.kernels.{name}")


COMPILERS = {"cpu": "numba", "cuda": "triton"}  # of the kernels for a kind of device
HALF = (torch.float16, torch.bfloat16)


@cache
def _native(device: str) -> bool:
    """Whether there are kernels of its own for this kind of device."""
    return device in COMPILERS and importlib.util.find_spec(COMPILERS[device]) is not None


def backend(tensor: Tensor) -> ModuleType:
    """The kernels that serve this tensor's device and dtype."""
    name = _forced.get()
    if name is None:
        device = tensor.device.type
        name = device if tensor.dtype not in HALF and _native(device) else "reference"
    return _load(name)


@contextmanager
def using(name: str) -> Iterator[None]:
    """Hold every kernel call in this block to one backend: "reference", "cpu" or "cuda"."""
    token = _forced.set(name)
    try:
        yield
    finally:
        _forced.reset(token)
