"""The rule of torch.vmap for everything that has heads: a batch is another axis of heads.

Kernels treat every head on its own. A tensor [rows, heads] that comes ``size`` times is therefore one of [rows, size * heads], and
one that comes once, beside others that are batched, is repeated.
"""

from __future__ import annotations

from torch import Tensor


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
