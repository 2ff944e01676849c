from __future__ import annotations

import io
from types import SimpleNamespace

from rich.console import Console

from convergent.training.config import TrainConfig
from convergent.training.keeper import Keeper
from convergent.training.module import Training
from convergent.training.progress import Bar


class Looked(Training):
    """All that a bar asks of a training."""

    def __init__(self) -> None:
        self.looks = 0

    def look(self) -> dict[str, float]:
        self.looks += 1
        return {"loss": 0.5, "iterations": 11.0, "worst_bound": 2e-6}


def test_the_bar_shows_steps_loss_measure_iterations_and_certificate(tmp_path) -> None:
    said = io.StringIO()
    keeper = Keeper(tmp_path, TrainConfig(task="pore-networks", model="CGS(8)"))
    keeper.validation = {"mse": 0.0123, "largest_error": 1.0}
    bar = Bar(keeper, 40, Console(file=said, force_terminal=True, width=160))
    trainer = SimpleNamespace(is_global_zero=True, global_step=20)
    bar.on_train_start(trainer, None)  # resumed in the middle
    trainer.global_step = 30
    bar.on_train_batch_end(trainer, Looked())
    bar.progress.refresh()
    bar.teardown(trainer, None, "fit")
    text = said.getvalue()
    assert "30/40" in text
    assert "loss 0.5 mse 0.012 11 it within 2e-06" in text


def test_only_the_first_process_has_a_bar(tmp_path) -> None:
    said = io.StringIO()
    keeper = Keeper(tmp_path, TrainConfig(task="pore-networks", model="CGS(8)"))
    bar = Bar(keeper, 40, Console(file=said))
    trainer = SimpleNamespace(is_global_zero=False, global_step=0)
    bar.on_train_start(trainer, None)
    bar.on_train_batch_end(trainer, Looked())
    bar.teardown(trainer, None, "fit")
    assert said.getvalue() == ""


def test_the_bar_looks_now_and_then_and_at_the_end(tmp_path) -> None:
    bar = Bar(Keeper(tmp_path, TrainConfig(task="pore-networks", model="CGS(8)")), 40, Console(file=io.StringIO()))
    trainer, training = SimpleNamespace(is_global_zero=True, global_step=0), Looked()
    bar.on_train_start(trainer, None)
    for trainer.global_step in range(1, 40):
        bar.on_train_batch_end(trainer, training)
    assert training.looks < 39  # fewer than steps, unless they take long
    before, trainer.global_step = training.looks, 40
    bar.on_train_batch_end(trainer, training)
    bar.teardown(trainer, None, "fit")
    assert training.looks == before + 1
