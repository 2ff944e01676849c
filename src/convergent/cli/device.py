"""Where a command computes."""

from __future__ import annotations

import os

from convergent.errors import expect


def usable(device: str, devices: int = 1) -> str:
    """The device, if it is there, so many times."""
    import torch

    expect(device in ("cpu", "cuda"), "--device", "cpu or cuda", repr(device))
    expect(device == "cpu" or torch.cuda.is_available(), "--device", "cpu, as there is no CUDA device", repr(device))
    there, what = (os.cpu_count() or 1, "cores") if device == "cpu" else (torch.cuda.device_count(), "cards")
    expect(devices <= there, "--devices", f"at most {there}, the number of {what} here", devices)
    return device
