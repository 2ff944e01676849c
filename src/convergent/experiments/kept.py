"""Where a cross-validation stands, on disk."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from convergent.storage.files import write_atomically

EVERY = 20.0  # seconds between two writes: the most that an interrupt can cost


class Kept:
    """What a training has found so far, and all that its next epoch depends on; read from ``file`` if it is there.

    Attributes:
        correct, losses: a row per test and per epoch, to be added to.
    """

    def __init__(self, file: Path | None, model: nn.Module, optimizer: torch.optim.Optimizer):
        self.file, self.model, self.optimizer = file, model, optimizer
        self.device = next(model.parameters()).device
        self.correct: list[Tensor] = []
        self.losses: list[Tensor] = []
        self.before, self.began = 0.0, time.monotonic()
        self.written = self.began
        if file is not None and file.exists():
            self.restore(torch.load(file, map_location="cpu", weights_only=True))

    @property
    def seconds(self) -> float:
        """Of training, those before an interrupt included."""
        return self.before + time.monotonic() - self.began

    def now_and_then(self) -> None:
        """After an epoch: write it down, if the last time is some seconds ago."""
        if self.file is not None and time.monotonic() - self.written >= EVERY:
            content = io.BytesIO()
            torch.save(self.state(), content)
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.file, content.getvalue())
            self.written = time.monotonic()

    def state(self) -> dict[str, Any]:
        return {
            "correct": self.correct,
            "losses": self.losses,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": [torch.get_rng_state(), torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None],
            "seconds": self.seconds,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.correct, self.losses = ([row.to(self.device) for row in state[name]] for name in ("correct", "losses"))
        self.before = state["seconds"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])  # takes to the device what belongs there, which is not all of it
        host, device = state["random"]
        torch.set_rng_state(host)
        if device is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(device, self.device)
