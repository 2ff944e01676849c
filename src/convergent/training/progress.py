"""A progress bar that knows how many steps there are, also after a resume."""

from __future__ import annotations

import time
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from convergent.training.keeper import Keeper
from convergent.training.module import Training

REFRESH = 0.1  # seconds between two looks: a device that is asked has to finish first


def bar(console: Console, *fields: str) -> Progress:
    """The one look of all progress bars: what, how far, how long, and some fields of text."""
    columns = [TextColumn(f"{{task.fields[{name}]}}") for name in fields]
    shown = [TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn(), *columns]
    return Progress(*shown, console=console)


class Bar(Callback):
    """Step, loss, the first measure of the last validation, iterations and the worst certificate."""

    def __init__(self, keeper: Keeper, steps: int, console: Console | None = None):
        self.keeper, self.steps = keeper, steps
        self.progress = bar(console or Console(stderr=True), "state")
        self.task: TaskID | None = None
        self.looked = 0.0

    def on_train_start(self, trainer: lightning.Trainer, training: lightning.LightningModule) -> None:
        if trainer.is_global_zero:
            self.task = self.progress.add_task("training", total=self.steps, completed=trainer.global_step, state="")
            self.progress.start()

    def on_train_batch_end(self, trainer: lightning.Trainer, training: lightning.LightningModule, *_: Any) -> None:
        now, last = time.monotonic(), trainer.global_step == self.steps
        if self.task is not None and (last or now - self.looked >= REFRESH):
            assert isinstance(training, Training)
            self.looked = now
            self.progress.update(self.task, completed=trainer.global_step, state=self.state(training.look()))

    def state(self, seen: dict[str, float]) -> str:
        parts = [f"loss {seen['loss']:.2g}"]
        parts += [f"{name} {value:.2g}" for name, value in list(self.keeper.validation.items())[:1]]
        if "iterations" in seen:
            parts += [f"{int(seen['iterations'])} it", f"within {seen['worst_bound']:.0e}"]
        return " ".join(parts)

    def teardown(self, trainer: lightning.Trainer, training: lightning.LightningModule, stage: str) -> None:
        if self.task is not None:
            self.progress.stop()
