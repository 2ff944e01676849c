from __future__ import annotations

import io
from types import SimpleNamespace

import torch
from rich.console import Console

from convergent.training.config import TrainConfig
from convergent.training.keeper import Keeper
from convergent.training.progress import Bar


def test_the_bar_shows_steps_loss_measure_iterations_and_certificate(tmp_path) -> None:
    said = io.StringIO()
    keeper = Keeper(tmp_path, TrainConfig(task="pore-networks", model="CGS(8)"))
    keeper.validation = {"mse": 0.0123, "largest_error": 1.0}
    bar = Bar(keeper, 40, Console(file=said, force_terminal=True, width=160))
    metrics = {"loss": torch.tensor(0.5), "iterations": torch.tensor(11.0), "worst_bound": torch.tensor(2e-6)}
    trainer = SimpleNamespace(is_global_zero=True, global_step=20, callback_metrics=metrics)
    bar.on_train_start(trainer, None)  # resumed in the middle
    trainer.global_step = 30
    bar.on_train_batch_end(trainer)
    bar.progress.refresh()
    bar.teardown(trainer, None, "fit")
    text = said.getvalue()
    assert "30/40" in text
    assert "loss 0.5 mse 0.012 11 it within 2e-06" in text


def test_only_the_first_process_has_a_bar(tmp_path) -> None:
    said = io.StringIO()
    keeper = Keeper(tmp_path, TrainConfig(task="pore-networks", model="CGS(8)"))
    bar = Bar(keeper, 40, Console(file=said))
    trainer = SimpleNamespace(is_global_zero=False, global_step=0, callback_metrics={})
    bar.on_train_start(trainer, None)
    bar.on_train_batch_end(trainer)
    bar.teardown(trainer, None, "fit")
    assert said.getvalue() == ""
