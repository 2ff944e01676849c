"""Train a model, and leave a folder that says how."""

from __future__ import annotations

import logging
import platform
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback, RichProgressBar

from convergent.errors import InputError
from convergent.nn.model import count_parameters
from convergent.training.config import TrainConfig
from convergent.training.module import Training
from convergent.training.objective import build_model
from convergent.training.run import (
    CHECKPOINT,
    CONFIG,
    METRICS,
    MODEL,
    RESULT,
    append_row,
    keep_rows,
    read_json,
    save_model,
    write_json,
)

LOG_EVERY = 10


def train(
    config: TrainConfig | None,
    folder: Path | str,
    resume: bool = False,
    device: str = "cpu",
    devices: int = 1,
    progress: bool = False,
) -> dict[str, Any]:
    """Train, or go on with what ``folder`` holds, and return what result.json says.

    Raises:
        InputError: the folder holds a run already and ``resume`` is not set, or holds none and it is.
    """
    folder = Path(folder)
    if resume:
        config = TrainConfig.from_json(read_json(folder / CONFIG))
        if (folder / RESULT).exists():
            return read_json(folder / RESULT)
    else:
        if config is None:
            raise InputError("config: expected the settings of a run, but got None")
        if (folder / CONFIG).exists():
            raise InputError(f"{folder}: expected a new folder, but it holds a run; resume it, or name another")
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / CONFIG, config.to_json())
    with _quiet_lightning():
        return _fit(config, folder, resume, device, devices, progress)


def _fit(config: TrainConfig, folder: Path, resume: bool, device: str, devices: int, progress: bool) -> dict[str, Any]:
    lightning.seed_everything(config.seed, verbose=False)
    training = Training(config, build_model(config))
    keeper = Keeper(folder, config)
    trainer = lightning.Trainer(
        max_steps=config.steps,
        accelerator=device,
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        callbacks=[keeper, *([RichProgressBar()] if progress else [])],
        enable_progress_bar=progress,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
        gradient_clip_val=config.clip,
        limit_val_batches=0,  # the keeper validates, by the number of the step alone, so that a resumed run does as it would have
        use_distributed_sampler=False,
    )
    checkpoint = folder / CHECKPOINT
    trainer.fit(training, ckpt_path=str(checkpoint) if resume and checkpoint.exists() else None)
    return keeper.finish(trainer, training)


@contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Without its banners, its advice on loaders (batches are made whole), and its own use of what torch deprecates."""
    logger = logging.getLogger("lightning.pytorch")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*does not have many workers")
            warnings.filterwarnings("ignore", ".*treespec, LeafSpec", FutureWarning)
            yield
    finally:
        logger.setLevel(before)


class Keeper(Callback):
    """Writes the folder: metrics as they come, points to resume from, the best model, the result."""

    def __init__(self, folder: Path, config: TrainConfig):
        self.folder, self.config = folder, config
        self.best, self.best_step, self.since_best = float("inf"), -1, 0
        self.validation: dict[str, float] = {}
        self.seconds = 0.0
        self.began = time.monotonic()

    @property
    def state_key(self) -> str:
        return "keeper"

    def state_dict(self) -> dict[str, Any]:
        names = ("best", "best_step", "since_best", "validation", "seconds")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def on_train_start(self, trainer: lightning.Trainer, training: lightning.LightningModule) -> None:
        self.began = time.monotonic()
        if trainer.is_global_zero:
            keep_rows(self.folder / METRICS, trainer.global_step)

    def on_train_batch_end(self, trainer: lightning.Trainer, training: lightning.LightningModule, *_: Any) -> None:
        step, last = trainer.global_step, trainer.global_step == self.config.steps
        if trainer.is_global_zero and (step % LOG_EVERY == 0 or last):
            self._log(trainer, step)
        if step % self.config.validate_every == 0 or last:
            self._validate(trainer, training)
        if step % self.config.checkpoint_every == 0:
            self.keep(trainer)

    def _validate(self, trainer: lightning.Trainer, training: lightning.LightningModule) -> None:
        assert isinstance(training, Training)
        self.validation = training.validate()
        for name, value in self.validation.items():
            training.log(name, value, prog_bar=True, batch_size=1)
        first = next(iter(self.validation.values()))
        improved = first < self.best
        self.since_best = 0 if improved else self.since_best + 1
        if improved:
            self.best, self.best_step = first, trainer.global_step
            if trainer.is_global_zero:
                save_model(self.folder / MODEL, training.model, {"step": trainer.global_step, **self.validation})
        if self.config.patience is not None and self.since_best >= self.config.patience:
            trainer.should_stop = True

    def on_exception(self, trainer: lightning.Trainer, training: lightning.LightningModule, exception: BaseException) -> None:
        if isinstance(exception, KeyboardInterrupt):
            self.keep(trainer)

    def keep(self, trainer: lightning.Trainer) -> None:
        now = time.monotonic()
        self.seconds, self.began = self.seconds + now - self.began, now
        partial = self.folder / f".{CHECKPOINT}.part"
        trainer.save_checkpoint(partial)
        if trainer.is_global_zero:
            partial.replace(self.folder / CHECKPOINT)

    def _log(self, trainer: lightning.Trainer, step: int) -> None:
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        names = ("loss", "iterations", "worst_bound")
        row = {"step": step, "rate": rate, **{name: metrics.get(name, float("nan")) for name in names}}
        append_row(self.folder / METRICS, row)

    def finish(self, trainer: lightning.Trainer, training: Training) -> dict[str, Any]:
        if not (self.folder / MODEL).exists() and trainer.is_global_zero:
            save_model(self.folder / MODEL, training.model, {"step": trainer.global_step})
        self.keep(trainer)
        result = {
            "config": self.config.to_json(),
            "steps": trainer.global_step,
            "parameters": count_parameters(training.model),
            "best_step": self.best_step,
            "validation": self.validation,
            "best": self.best,
            "solves": {**training.solves, "worst_bound": training.worst_bound},
            "seconds": self.seconds,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **provenance(),
        }
        if trainer.is_global_zero:
            write_json(self.folder / RESULT, result)
        return result


def provenance() -> dict[str, Any]:
    """Where a result comes from."""
    versions = {"python": platform.python_version(), "torch": torch.__version__, "lightning": lightning.__version__}
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    machine = {"system": platform.system(), "cpu": platform.machine(), "gpu": gpu}
    return {"commit": _commit(), "versions": versions, "machine": machine}


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None if done.returncode == 0 else None
