"""Launches that cost the host a few microseconds.

Triton looks at every argument of every launch to find the compiled form that fits it, which takes longer than many of our kernels
run. Here the few facts it looks for (dtypes, addresses and sizes that are multiples of 16) are a key to the forms seen before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import triton

KNOWN = (3, 6)  # the last version of Triton whose compiled kernels are known to be launched as below


class Kernel:
    """A Triton kernel whose arguments are tensors, then numbers, then what is compiled in, in this order."""

    def __init__(self, function: Any):
        self.function = function
        self.forms: dict[Any, Callable[..., None] | None] = {}

    def __call__(
        self, grid: tuple[int, int], tensors: Sequence[Any], numbers: Sequence[float], constants: tuple[Any, ...], warps: int = 4
    ) -> None:
        device = tensors[0].device.index
        if device is not None and device != torch.cuda.current_device():
            with torch.cuda.device(device):
                return self(grid, tensors, numbers, constants, warps)
        self.prepared(grid, tensors, numbers, constants, warps)()

    def prepared(
        self, grid: tuple[int, int], tensors: Sequence[Any], numbers: Sequence[float], constants: tuple[Any, ...], warps: int = 4
    ) -> Callable[[], None]:
        """The same launch, to be made again and again on the current device while these tensors live."""
        device = tensors[0].device.index
        addresses = [tensor.data_ptr() for tensor in tensors]
        facts = ([tensor.dtype for tensor in tensors], [address & 15 == 0 for address in addresses], map(_fact, numbers))
        key = (device, warps, constants, *map(tuple, facts))
        launch = self.forms.get(key)
        if launch is not None:
            return partial(launch, *grid, *addresses, *numbers, *constants)

        def first() -> None:
            compiled = self.function[grid](*tensors, *numbers, *constants, num_warps=warps)  # and launched
            self.forms[key] = None if compiled is None else _launcher(compiled, device)  # None: in Triton's interpreter

        return first


def _fact(number: float) -> Any:
    """What a form is compiled for: of a whole number whether it is 1, short, a multiple of 16."""
    return None if isinstance(number, float) else (number == 1, number < 2**31, number & 15 == 0)


def _launcher(compiled: Any, device: Any) -> Callable[..., None]:
    """From a grid and arguments to a launch on the stream of the moment."""
    if tuple(map(int, triton.__version__.split(".")[:2])) > KNOWN:
        return lambda columns, rows, *arguments: compiled[(columns, rows, 1)](*arguments)
    start, function, packed, stream = compiled.run, compiled.function, compiled.packed_metadata, torch._C._cuda_getCurrentRawStream

    def launch(columns: int, rows: int, *arguments: Any) -> None:
        start(columns, rows, 1, stream(device), function, packed, None, None, None, *arguments)

    return launch
