"""Checkpoints: tensors and numbers in one file, which is whole or not there."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import CheckpointIO

from convergent.errors import InputError
from convergent.storage.files import write_atomically

NEEDED = ("state_dict", "optimizer_states", "lr_schedulers", "loops", "callbacks", "global_step", "solves", "worst_bound", "random")


class Checkpoints(CheckpointIO):
    """How Lightning writes and reads them: beside their place and on the disk, and without running code that is in them."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        content = io.BytesIO()
        torch.save(checkpoint, content)
        write_atomically(Path(path), content.getvalue())

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        return read_checkpoint(Path(path), map_location)

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


def read_checkpoint(path: Path, map_location: Any = None) -> dict[str, Any]:
    """What is in a checkpoint.

    Raises:
        InputError: it is damaged, or no checkpoint.
    """
    try:
        _check_sums(path)
        found = torch.load(path, map_location=map_location, weights_only=True)
    except FileNotFoundError:
        raise InputError(f"{path}: expected a checkpoint, but there is no such file") from None
    except Exception as error:  # torch raises all kinds
        raise damaged(path, "it is empty" if path.stat().st_size == 0 else "it could not be read") from error
    missing = [name for name in NEEDED if name not in found] if isinstance(found, dict) else list(NEEDED)
    if missing:
        raise damaged(path, f"it has no {missing[0]}")
    return found


def _check_sums(path: Path) -> None:
    """Compare every part with its check sum, which torch does not: a flipped bit would be a wrong weight."""
    with zipfile.ZipFile(path) as archive:
        if archive.testzip() is not None:
            raise ValueError("a part does not have its check sum")


def damaged(path: Path, reason: str) -> InputError:
    return InputError(f"{path}: expected a checkpoint, but {reason}; restore it, or delete it to start again from the first step")
