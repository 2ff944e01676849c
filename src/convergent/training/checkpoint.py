"""Checkpoints: tensors and numbers in one file, which is whole or not there."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from lightning.pytorch.plugins.io import CheckpointIO
from torch import Tensor

from convergent.errors import InputError
from convergent.settings import Measure, Natural, arguments, checked
from convergent.storage.files import write_atomically

KEEPER = "keeper"  # the name of its state, among those of callbacks


@dataclass(frozen=True)
class KeeperState:
    """What the keeper knows of the steps so far."""

    best: Measure
    best_step: int
    since_best: Natural
    validation: dict[str, Measure]
    seconds: Measure


@dataclass(frozen=True)
class Kept:
    keeper: KeeperState


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint has to hold; Lightning adds more."""

    state_dict: dict[str, Tensor]
    optimizer_states: tuple[dict[str, Any]]
    lr_schedulers: tuple[dict[str, Any]]
    loops: dict[str, dict[str, Any]]
    callbacks: Kept
    global_step: Natural
    solves: dict[str, int]
    worst_bound: Measure
    random: Tensor


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
    try:
        arguments(Checkpoint, found, "checkpoint", spare=True)
        checked(Natural, found["lr_schedulers"][0].get("last_epoch"), "lr_schedulers.last_epoch")
    except InputError as error:
        raise damaged(path, f"it is not as it was written ({error})") from error
    return cast(dict[str, Any], found)


def require_fit(checkpoint: dict[str, Any], parameters: Iterable[Tensor]) -> None:
    """Refuse the state of an optimiser for other parameters, which torch would load and then fail in a step.

    Raises:
        ValueError: names the parameter by its number.
    """
    shapes = [parameter.shape for parameter in parameters]
    for number, state in checkpoint["optimizer_states"][0]["state"].items():
        for name in ("exp_avg", "exp_avg_sq"):
            if state[name].shape != shapes[number]:
                raise ValueError(
                    f"{name} of parameter {number}: expected {list(shapes[number])}, but got {list(state[name].shape)}"
                )


def _check_sums(path: Path) -> None:
    """Compare every part with its check sum, which torch does not: a flipped bit would be a wrong weight."""
    with zipfile.ZipFile(path) as archive:
        if archive.testzip() is not None:
            raise ValueError("a part does not have its check sum")


def damaged(path: Path, reason: str) -> InputError:
    return InputError(f"{path}: expected a checkpoint, but {reason}; restore it, or delete it to start again from the first step")
