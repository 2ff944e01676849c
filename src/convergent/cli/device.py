"""Where a command computes."""

from __future__ import annotations

from convergent.errors import expect


def usable(device: str) -> str:
    import torch

    expect(device in ("cpu", "cuda"), "--device", "cpu or cuda", repr(device))
    expect(device == "cpu" or torch.cuda.is_available(), "--device", "cpu, as there is no CUDA device", repr(device))
    return device
