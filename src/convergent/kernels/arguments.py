"""What the kernels take for granted of a tensor: they read memory by its shape and look at nothing else.

Every function and method that hands tensors on to a kernel tests them here first. Only shapes, dtypes, devices and layouts are
looked at, never the numbers: a test costs half a microsecond and works inside torch.compile, torch.func and CUDA graphs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from convergent.errors import InputError

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def expect_matrix(name: str, value: Tensor, rows: int | str, columns: int | str, device: torch.device) -> None:
    """Raise unless ``value`` is a dense tensor [rows, columns] of a floating point dtype on ``device``.

    A word in the place of a number stands for any number, and is what the error calls it.
    """
    if (
        isinstance(value, Tensor)
        and value.dim() == 2
        and (isinstance(rows, str) or value.shape[0] == rows)
        and (isinstance(columns, str) or value.shape[1] == columns)
        and value.dtype in FLOATS
        and value.device == device
        and value.layout is torch.strided
    ):
        return
    _refuse(name, value, [rows, columns], FLOATS, device)


def expect_flags(name: str, value: Tensor, count: int, device: torch.device) -> None:
    """Raise unless ``value`` is a dense tensor [count] of bool on ``device``."""
    fits = isinstance(value, Tensor) and value.dim() == 1 and value.shape[0] == count
    if fits and value.dtype == torch.bool and value.device == device and value.layout is torch.strided:
        return
    _refuse(name, value, [count], (torch.bool,), device)


def _refuse(name: str, value: object, shape: list[object], dtypes: tuple[torch.dtype, ...], device: torch.device) -> None:
    """The error that names the first thing which is wrong."""
    wanted = f"[{', '.join(map(str, shape))}]"
    if not isinstance(value, Tensor):
        raise InputError(f"{name}: expected a tensor of shape {wanted}, but got {type(value).__name__}")
    if value.layout is not torch.strided:
        raise InputError(f"{name}: expected a dense tensor, but got the layout {value.layout}")
    sizes = list(value.shape)
    if len(sizes) != len(shape) or any(isinstance(size, int) and size != came for size, came in zip(shape, sizes, strict=True)):
        raise InputError(f"{name}: expected shape {wanted}, but got {sizes}")
    if value.dtype not in dtypes:
        kind = "a floating point dtype" if dtypes is FLOATS else " or ".join(map(str, dtypes))
        raise InputError(f"{name}: expected {kind}, but got {value.dtype}")
    raise InputError(f"{name}: expected a tensor on {device}, but got one on {value.device}")


def described(value: object) -> str:
    """What came, for an error: the dtype and shape of a tensor, anything else as it is."""
    return f"{value.dtype} of shape {list(value.shape)}" if isinstance(value, Tensor) else repr(value)
