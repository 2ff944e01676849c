"""Train a model, and leave a folder that says how."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import lightning

from convergent.errors import InputError
from convergent.storage.files import discard_folder, read_json, remove_parts, write_json
from convergent.storage.fingerprint import Inputs, require_same
from convergent.storage.lock import LOCK, forget, owned
from convergent.training.checkpoint import Checkpoints, damaged
from convergent.training.config import TrainConfig
from convergent.training.keeper import Keeper
from convergent.training.module import Training
from convergent.training.problem import Problem
from convergent.training.progress import Bar
from convergent.training.run import (
    CHECKPOINT,
    CONFIG,
    DATA,
    METRICS,
    MODEL,
    RESULT,
    TENSORBOARD,
    VALIDATIONS,
    read_config,
    read_result,
)
from convergent.training.signals import deferred

# How states that do not fit the model make Lightning and torch fail.
MISFITS = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError)


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
        InputError: the folder holds a run already and ``resume`` is not set, or holds none and it is; another process trains
            there; or the data has changed since the run was started.
        Stopped: a KeyboardInterrupt that names the signal; all steps up to then are kept, and ``resume`` goes on with the next one.
    """
    folder = Path(folder)
    config = read_config(folder / CONFIG) if resume else config
    if config is None:
        raise InputError("config: expected the settings of a run, but got None")
    if resume and (folder / RESULT).exists():
        forget(folder / LOCK)
        return _finished(folder)
    with _owned(folder):
        if resume and (folder / RESULT).exists():  # by a process that has just ended
            return _finished(folder)
        if not resume and _first_process() and (folder / CONFIG).exists():
            raise InputError(f"{folder}: expected a new folder, but it holds a run; resume it, or name another")
        problem = Problem.of(config)
        model = _seeded(config, problem)
        with _quiet_lightning(), deferred() as stop:
            training, keeper = Training(config, problem, model), Keeper(folder, config, stop)
            trainer = _trainer(config, keeper, device, devices, nodes, progress)
            with nullcontext() if resume else _undone_unless_begun(keeper):
                if _first_process():
                    _begin(folder, config, problem, resume)
                _fit(trainer, training, keeper, resume)
            return keeper.finish(trainer, training)


def _finished(folder: Path) -> dict[str, Any]:
    if not (folder / MODEL).exists():
        raise InputError(f"{folder / MODEL}: no such file, but the run is finished; restore it, or start a new run")
    return read_result(folder / RESULT)


def _begin(folder: Path, config: TrainConfig, problem: Problem, resume: bool) -> None:
    """The run is there once its settings are, which are the last to be written."""
    remove_parts(folder)
    data = Inputs(problem.inputs()).fingerprints
    if resume and (folder / DATA).exists():
        remedy = "restore the data, or start a new run"
        require_same(str(folder), read_json(folder / DATA), data, remedy)
    if data and not (resume and (folder / DATA).exists()):
        write_json(folder / DATA, data)
    if not resume:
        write_json(folder / CONFIG, config.to_json())


@contextmanager
def _undone_unless_begun(keeper: Keeper) -> Iterator[None]:
    """A run that fails in its first step leaves nothing, so that it can be started again with other settings."""
    try:
        yield
    except Exception:
        if keeper.steps <= 0 and _first_process():
            for name in (CONFIG, DATA, METRICS, VALIDATIONS, MODEL, CHECKPOINT):
                (keeper.folder / name).unlink(missing_ok=True)
            if (keeper.folder / TENSORBOARD).exists():
                discard_folder(keeper.folder / TENSORBOARD)
        raise


def _trainer(config: TrainConfig, keeper: Keeper, device: str, devices: int, nodes: int, progress: bool) -> lightning.Trainer:
    return lightning.Trainer(
        max_steps=config.steps,
        accelerator=device,
        devices=devices,
        num_nodes=nodes,
        strategy="ddp" if devices * nodes > 1 else "auto",
        callbacks=[keeper, *([Bar(keeper, config.steps)] if progress else [])],
        plugins=[Checkpoints()],
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
        gradient_clip_val=config.clip,
        limit_val_batches=0,  # the keeper validates, by the number of the step alone
        use_distributed_sampler=False,
    )


def _seeded(config: TrainConfig, problem: Problem) -> Any:
    lightning.seed_everything(config.seed, verbose=False)
    return problem.build()


def _fit(trainer: lightning.Trainer, training: Training, keeper: Keeper, resume: bool) -> None:
    """Train to the end, or to the end of the step in which a signal comes."""
    checkpoint = keeper.folder / CHECKPOINT
    start = str(checkpoint) if resume and checkpoint.exists() else None
    try:
        trainer.fit(training, ckpt_path=start)
    except SystemExit:  # Lightning's answer to a signal that was not waited for
        if keeper.stop.received is not None:
            raise keeper.stop.stopped() from None
        raise
    except MISFITS as error:
        if start is None or keeper.steps >= 0 or isinstance(error, InputError):
            raise
        raise damaged(checkpoint, "it does not fit this run") from error
    finally:
        training.close()
    if keeper.stop.received is not None and trainer.global_step < keeper.config.steps and not keeper.out_of_patience:
        keeper.keep(trainer)
        if not trainer.is_global_zero:  # Lightning kills the first process where another one fails
            raise SystemExit(0)
        raise keeper.stop.stopped()


def _owned(folder: Path) -> AbstractContextManager[None]:
    """The first process owns the folder for all of them."""
    return owned(folder) if _first_process() else nullcontext()


def _first_process() -> bool:
    """Whether this is it, before Lightning has told: a launcher sets some of these."""
    names = ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK")
    return all(os.environ.get(name, "0") == "0" for name in names)


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
