"""Train a model, and leave a folder that says how."""

from __future__ import annotations

import logging
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning

from convergent.errors import InputError
from convergent.training.config import TrainConfig
from convergent.training.keeper import Keeper
from convergent.training.module import Training
from convergent.training.problem import Problem
from convergent.training.progress import Bar
from convergent.training.run import CHECKPOINT, CONFIG, RESULT, read_json, write_json


def train(
    config: TrainConfig | None,
    folder: Path | str,
    resume: bool = False,
    device: str = "cpu",
    devices: int = 1,
    progress: bool = False,
    nodes: int = 1,
) -> dict[str, Any]:
    """Train, or go on with what ``folder`` holds, and return what result.json says.

    With several devices the command that called this is started once for each of them (Lightning's DDP), or has been by a launcher.

    Raises:
        InputError: the folder holds a run already and ``resume`` is not set, or holds none and it is.
        KeyboardInterrupt: the run was interrupted; all steps up to then are kept, and ``resume`` goes on with the next one.
    """
    folder = Path(folder)
    config = _resumed(folder) if resume else config
    if config is None:
        raise InputError("config: expected the settings of a run, but got None")
    if resume and (folder / RESULT).exists():
        return read_json(folder / RESULT)
    problem = Problem.of(config)
    model = _seeded(config, problem)
    if not resume and _rank() == 0:
        if (folder / CONFIG).exists():
            raise InputError(f"{folder}: expected a new folder, but it holds a run; resume it, or name another")
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / CONFIG, config.to_json())
    with _quiet_lightning():
        training, keeper = Training(config, problem, model), Keeper(folder, config)
        return _fit(_trainer(config, keeper, device, devices, nodes, progress), training, keeper, resume)


def _trainer(config: TrainConfig, keeper: Keeper, device: str, devices: int, nodes: int, progress: bool) -> lightning.Trainer:
    return lightning.Trainer(
        max_steps=config.steps,
        accelerator=device,
        devices=devices,
        num_nodes=nodes,
        strategy="ddp" if devices * nodes > 1 else "auto",
        callbacks=[keeper, *([Bar(keeper, config.steps)] if progress else [])],
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
        gradient_clip_val=config.clip,
        limit_val_batches=0,  # the keeper validates, by the number of the step alone
        use_distributed_sampler=False,
    )


def _resumed(folder: Path) -> TrainConfig:
    return TrainConfig.from_json(read_json(folder / CONFIG))


def _seeded(config: TrainConfig, problem: Problem) -> Any:
    lightning.seed_everything(config.seed, verbose=False)
    return problem.build()


def _fit(trainer: lightning.Trainer, training: Training, keeper: Keeper, resume: bool) -> dict[str, Any]:
    checkpoint = keeper.folder / CHECKPOINT
    with _heard(keeper):
        try:
            trainer.fit(training, ckpt_path=str(checkpoint) if resume and checkpoint.exists() else None)
        except SystemExit:  # Lightning's answer to an interrupt that was not waited for
            if keeper.interrupted:
                raise KeyboardInterrupt from None
            raise
        finally:
            training.close()
        if keeper.interrupted and trainer.global_step < keeper.config.steps:
            keeper.keep(trainer)
            raise KeyboardInterrupt
    return keeper.finish(trainer, training)


@contextmanager
def _heard(keeper: Keeper) -> Iterator[None]:
    """An interrupt waits for the end of the step, from which a run can be resumed; a second one does not wait."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def hear(*_: Any) -> None:
        if keeper.interrupted:
            raise KeyboardInterrupt
        keeper.interrupted = True

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _rank() -> int:
    """Of this process, before Lightning has told: a launcher sets one of these."""
    return int(next((os.environ[name] for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK") if name in os.environ), 0))


@contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Without its banners, its advice on loaders (batches are made whole) and devices, and its own use of what torch deprecates."""
    logger = logging.getLogger("lightning.pytorch")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*does not have many workers")
            warnings.filterwarnings("ignore", "GPU available but not used")
            warnings.filterwarnings("ignore", ".*treespec, LeafSpec", FutureWarning)
            yield
    finally:
        logger.setLevel(before)
