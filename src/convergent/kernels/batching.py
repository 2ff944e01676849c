"""The rule of torch.vmap for everything that has heads: a batch is another axis of heads.

Kernels treat every head on its own. A tensor [rows, heads] that comes ``size`` times is therefore one of [rows, size * heads], and
one that comes once, beside others that are batched, is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._functorch.utils import unwrap_dead_wrappers


def fold(value: Tensor, dim: int | None, size: int) -> Tensor:
    """A batch at ``dim`` of tensors [..., heads] as one tensor [..., size * heads]; None: the same tensor for all of the batch."""
    if dim is None:
        *lead, heads = value.shape
        wide = value.unsqueeze(-2).expand(*lead, size, heads)
    else:
        wide = value.movedim(dim, -2)
    return wide.reshape(*wide.shape[:-2], size * wide.shape[-1])


def unfold(value: Tensor, size: int) -> Tensor:
    """The way back: [rows, size * heads] -> [rows, size, heads], a batch at dimension 1."""
    return value.view(value.shape[0], size, value.shape[1] // size)


def saved(ctx: Any) -> tuple[Tensor, ...]:
    """What a function has saved for its derivatives, which torch.func.vjp may ask for after the transform has ended."""
    return unwrap_dead_wrappers(ctx.saved_tensors)


class _Batch(NamedTuple):
    """What a rule of torch.vmap is told about the batch."""

    batch_size: int


def batched_gradients(inputs: Sequence[object]) -> bool:
    """Whether ``torch.autograd.grad(..., is_grads_batched=True)`` is under way. It uses an older vmap than torch.func does, one
    that does not know the rules of functions."""
    return any(isinstance(value, Tensor) and torch._C._functorch.is_legacy_batchedtensor(value) for value in inputs)


def apply_to_gradients(function: type[torch.autograd.Function], inputs: Sequence[Any]) -> Any:
    """``function.apply`` inside that vmap, by the rule that the function has for torch.vmap."""
    level = torch._C._vmapmode_increment_nesting() - 1  # torch has no other way to ask for the level
    torch._C._vmapmode_decrement_nesting()
    plain = [_unbatched(value, level) if batched_gradients([value]) else value for value in inputs]
    dims = tuple(0 if batched_gradients([value]) else None for value in inputs)
    size = max(len(value) for value, dim in zip(plain, dims, strict=True) if dim == 0)
    whole = [value if dim is None else value.expand(size, *value.shape[1:]) for value, dim in zip(plain, dims, strict=True)]
    found, found_dims = function.vmap(_Batch(size), dims, *whole)
    if isinstance(found, Tensor):
        return _batched(found, found_dims, level)
    return tuple(_batched(value, dim, level) for value, dim in zip(found, found_dims, strict=True))


def _unbatched(value: Tensor, level: int) -> Tensor:
    """The tensor with its batch as dimension 0, which has size 1 where it is batched in an outer vmap only."""
    unbatched: Tensor = torch._remove_batch_dim(value, level, 1, 0)
    return unbatched


def _batched(value: Tensor, dim: int | None, level: int) -> Tensor:
    """The way back. Forward mode expects the members of the batch one after the other in memory."""
    if dim is None:
        return value
    batched: Tensor = torch._add_batch_dim(value.movedim(dim, 0).contiguous(), 0, level)
    return batched
