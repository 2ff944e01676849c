"""What keeps a run on disk while it trains: metrics, points to resume from, the best model, the result."""

from __future__ import annotations

import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback

from convergent.errors import InputError
from convergent.nn.model import count_parameters
from convergent.storage.files import sync_file, write_json
from convergent.training.board import Board, open_board
from convergent.training.checkpoint import KEEPER
from convergent.training.config import TrainConfig
from convergent.training.module import LOG_EVERY, Training
from convergent.training.provenance import provenance
from convergent.training.run import (
    CHECKPOINT,
    METRICS,
    MODEL,
    RESULT,
    TENSORBOARD,
    VALIDATIONS,
    append_row,
    keep_rows,
    save_model,
)
from convergent.training.signals import StopRequest

STATE = ("best", "best_step", "since_best", "validation", "seconds")  # of the keeper, in a checkpoint


class Keeper(Callback):
    """Writes the folder. All it decides follows from the number of the step, so that a resumed run does as it would have.

    A signal that asks the run to stop is obeyed at the end of the step.
    """

    def __init__(self, folder: Path, config: TrainConfig, stop: StopRequest | None = None):
        self.folder, self.config = folder, config
        self.stop = StopRequest() if stop is None else stop
        self.best, self.best_step, self.since_best = float("inf"), -1, 0
        self.validation: dict[str, float] = {}
        self.seconds = 0.0
        self.began = time.monotonic()
        self.steps = -1  # of this process; -1: training has not started
        self.board: Board | None = None

    @property
    def state_key(self) -> str:
        return KEEPER

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in STATE}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in STATE:
            setattr(self, name, state[name])
        if self.best_step >= 0 and not (self.folder / MODEL).exists():
            raise InputError(
                f"{self.folder / MODEL}: no such file, but the best model so far (step {self.best_step}) was saved there; "
                "restore it, or start a new run"
            )

    @property
    def out_of_patience(self) -> bool:
        return self.config.patience is not None and self.since_best >= self.config.patience

    def on_train_start(self, trainer: lightning.Trainer, training: lightning.LightningModule) -> None:
        self.began = time.monotonic()
        self.stop.listen()  # Lightning has put handlers of its own in place
        self.steps = 0
        trainer.should_stop = trainer.should_stop or self.out_of_patience  # killed between its last step and its result
        if trainer.is_global_zero:
            for name in (METRICS, VALIDATIONS):
                keep_rows(self.folder / name, trainer.global_step)
            self.board = open_board(self.folder / TENSORBOARD, trainer.global_step)

    def on_train_batch_end(self, trainer: lightning.Trainer, training: lightning.LightningModule, *_: Any) -> None:
        step, last = trainer.global_step, trainer.global_step == self.config.steps
        assert isinstance(training, Training)
        if step % LOG_EVERY == 0 or last:
            self._log_step(trainer, training)
        if step % self.config.validate_every == 0 or last:
            self._validate(trainer, training)
        if step % self.config.checkpoint_every == 0:
            self.keep(trainer)
        self._stop_together(trainer, step)
        self.steps += 1

    def _stop_together(self, trainer: lightning.Trainer, step: int) -> None:
        """Processes hear of an interrupt at different steps, and have to stop at the same one."""
        asked, together = self.stop.received is not None, step % LOG_EVERY == 0
        if trainer.world_size > 1 and together:
            asked = trainer.strategy.reduce_boolean_decision(asked, all=False)
            if asked and self.stop.received is None:  # the signal came to another process
                self.stop.received = signal.SIGTERM
        if asked and (trainer.world_size == 1 or together):
            trainer.should_stop = True

    def _log_step(self, trainer: lightning.Trainer, training: Training) -> None:
        seen = training.look()
        row = {name: seen.get(name, float("nan")) for name in ("loss", "iterations", "worst_bound")}
        self._write(trainer, METRICS, {"rate": float(trainer.optimizers[0].param_groups[0]["lr"]), **row})

    def _write(self, trainer: lightning.Trainer, name: str, row: dict[str, float]) -> None:
        """A row of a table, and the same to TensorBoard."""
        if not trainer.is_global_zero:
            return
        append_row(self.folder / name, {"step": trainer.global_step, **row})
        if self.board is not None:
            self.board.add({f"{name.removesuffix('.csv')}/{label}": value for label, value in row.items()}, trainer.global_step)

    def _validate(self, trainer: lightning.Trainer, training: Training) -> None:
        training.look()  # a model that went wrong is not judged
        self.validation = training.validate()
        self._write(trainer, VALIDATIONS, self.validation)
        first = next(iter(self.validation.values()))
        improved = first < self.best
        self.since_best = 0 if improved else self.since_best + 1
        if improved:
            self.best, self.best_step = first, trainer.global_step
            self._save_model(trainer, training)
        if self.out_of_patience:
            trainer.should_stop = True

    def _save_model(self, trainer: lightning.Trainer, training: Training) -> None:
        if not trainer.is_global_zero:
            return
        schema = training.problem.schema
        extra = {
            "config": self.config.to_json(),
            "schema": None if schema is None else schema.to_json(),
            "step": trainer.global_step,
            "validation": self.validation,
        }
        save_model(self.folder / MODEL, training.model, extra)

    def keep(self, trainer: lightning.Trainer) -> None:
        """A point to resume from, whole or not at all."""
        now = time.monotonic()
        self.seconds, self.began = self.seconds + now - self.began, now
        if trainer.is_global_zero:
            for name in (METRICS, VALIDATIONS):  # rows of the steps before it last as it does
                sync_file(self.folder / name)
        trainer.save_checkpoint(self.folder / CHECKPOINT)

    def finish(self, trainer: lightning.Trainer, training: Training) -> dict[str, Any]:
        if not (self.folder / MODEL).exists():  # no validation was better than none: its measure is not a number
            self._save_model(trainer, training)
        self.keep(trainer)
        solves, worst_bound = training.totals()
        result = {
            "config": self.config.to_json(),
            "steps": trainer.global_step,
            "parameters": count_parameters(training.model),
            "best_step": self.best_step,
            "best": self.best,
            "validation": self.validation,
            "solves": {**solves, "worst_bound": worst_bound},
            "processes": trainer.world_size,
            "seconds": self.seconds,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **provenance(),
        }
        if trainer.is_global_zero:
            write_json(self.folder / RESULT, result)
        return result
