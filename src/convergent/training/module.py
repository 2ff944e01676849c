"""The training loop's body, for Lightning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import lightning
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from convergent.errors import ConvergenceError
from convergent.nn.model import GraphModel
from convergent.tasks.batch import GraphBatch
from convergent.training.ahead import Ahead
from convergent.training.captured import CapturedStep, as_numbers, can_capture, in_one_piece, inner_model
from convergent.training.checkpoint import require_fit
from convergent.training.config import TrainConfig
from convergent.training.ledger import Ledger
from convergent.training.problem import TRAINING, Problem, summary

RESTART = 32  # steps of one cosine, as in the paper's code
LOG_EVERY = 10  # steps between two looks at what they brought


class Training(lightning.LightningModule):
    """A model, its loss, its optimiser, and the stream of graphs it learns from.

    With several processes each takes its share of the graphs of a step. The loss is divided by the nodes of all shares, so that
    the mean gradient is that of one process.

    Where ``captured`` is, it does the whole step, and Lightning's own backward, clipping and optimiser's step have nothing to do.
    """

    def __init__(self, config: TrainConfig, problem: Problem, model: GraphModel):
        super().__init__()
        self.config, self.problem, self.model = config, problem, model
        self.ledger = Ledger()
        self.held_out: GraphBatch | None = None
        self.moved: tuple[GraphBatch, GraphBatch] | None = None  # the last batch, as it came and on the device
        self.ahead: Ahead[tuple[GraphBatch, int]] | None = None
        self.random: Tensor | None = None  # the state to go on with after a resume

    def configure_optimizers(self) -> Any:
        config = self.config
        optimizer = torch.optim.Adam(self.parameters(), lr=config.rate)
        schedules = {
            "restarts": lambda: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, RESTART),
            "one-cycle": lambda: torch.optim.lr_scheduler.OneCycleLR(optimizer, config.rate, total_steps=config.steps + 1),
            "constant": lambda: torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0),
        }
        schedule = {"scheduler": schedules[config.schedule](), "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    @cached_property
    def captured(self) -> CapturedStep | None:
        """The step as a CUDA graph, where it can be one. Not to be asked for before the optimiser has its state."""
        if not can_capture(self.config, self.problem, self.model, self.device, self.trainer.world_size):
            return None
        return CapturedStep(self.model, self.problem.loss, self.trainer.optimizers[0], self.config.clip, self.ledger)

    def train_dataloader(self) -> DataLoader[tuple[GraphBatch, int]]:
        return DataLoader(Stream(self), batch_size=None, collate_fn=_as_it_is)

    def prepare(self, batch: GraphBatch) -> GraphBatch:
        """What can be done for a step before it begins, in another thread."""
        if self.captured is not None:
            return self.captured.prepare(batch)
        if self.device.type != "cuda":
            return batch
        in_one_piece(batch.graph)  # what the host asks of a structure is found out here, where no device has to finish first
        return batch.pinned(self.device)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        if self.captured is not None:
            return batch  # it copies for itself
        if self.moved is None or self.moved[0] is not batch[0]:
            self.moved = batch[0], batch[0].to(device)
        return self.moved[1], batch[1]

    def training_step(self, item: tuple[GraphBatch, int], index: int) -> Tensor:
        batch, answers = item
        if self.captured is not None:
            return self.captured(batch)
        prediction, solution = self.model(batch.x, batch.graph, batch.edge_attr, return_solution=True)
        loss = self.problem.loss(self.model, prediction, batch) * (self.trainer.world_size / max(answers, 1))
        self.ledger.graphs += 0 if solution is None else len(solution.steps)
        self.ledger.add(loss.detach(), solution)
        return loss

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        if self.captured is None:
            super().backward(loss, *args, **kwargs)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        if self.captured is None:
            super().optimizer_zero_grad(epoch, batch_idx, optimizer)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        if self.captured is None:
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        else:
            optimizer_closure()  # clipping, which would follow it, is part of the captured step too

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """How the model does on graphs it never trains on; the same ones every time, and in every process."""
        if self.held_out is None:
            self.held_out = self.problem.held_out(self.config.validation_graphs).to(self.device)
        batch = self.held_out
        self.model.eval()
        prediction = self.model(batch.x, batch.graph, batch.edge_attr)
        self.model.train()
        return summary(self.problem.measure(prediction, batch))

    def look(self) -> dict[str, float]:
        """The last step's loss and iterations, and the worst bound of all; where a captured solve went wrong this raises."""
        seen = self.ledger.read()
        if self.captured is not None:
            _check(seen.not_converged if _throws(self.model) else 0, seen.not_finite)
        row = {"loss": seen.loss}
        if self.ledger.solving:
            bound = torch.tensor(seen.worst_bound, dtype=torch.float32)  # as exact as the loss beside it
            row |= {"iterations": float(seen.iterations), "worst_bound": float(bound)}
        return row

    def totals(self) -> tuple[dict[str, int], float]:
        """The solves of all processes, and their worst bound; every process has to ask."""
        reduce, seen = self.trainer.strategy.reduce, self.ledger.read()
        names = {"graphs": "sum", "not_converged": "sum", "most_iterations": "max"}
        solves = {
            name: int(reduce(torch.tensor(getattr(seen, name), device=self.device), reduce_op=how)) for name, how in names.items()
        }
        bound = torch.tensor(seen.worst_bound, dtype=torch.float64, device=self.device)
        return solves, float(reduce(bound, reduce_op="max"))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.look()  # a model that went wrong is not kept
        checkpoint["solves"], checkpoint["worst_bound"] = self.totals()
        checkpoint["random"] = torch.get_rng_state()  # of dropout
        as_numbers(checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        require_fit(checkpoint, self.parameters())
        self.random = checkpoint["random"]
        if self.global_rank == 0:  # the others start from nothing: it is all of theirs
            self.ledger.restore(checkpoint["solves"], checkpoint["worst_bound"])

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.random is not None:  # not before: loaders draw numbers when they start
            torch.set_rng_state(self.random.cpu())
            self.random = None

    def close(self) -> None:
        """End the thread that makes batches, if there is one."""
        if self.ahead is not None:
            self.ahead.close()


class Stream(IterableDataset[tuple[GraphBatch, int]]):
    """The graphs of every step from the present one on, with the number of answers of all shares.

    Where a device computes, the next graphs are made meanwhile.
    """

    def __init__(self, training: Training):
        self.training = training

    def __iter__(self) -> Iterator[tuple[GraphBatch, int]]:
        training, config = self.training, self.training.config
        renew = config.renew or training.problem.renew
        make: Callable[[int], tuple[GraphBatch, int]] = self._make
        if training.captured is not None or training.device.type == "cuda":
            training.close()  # of an earlier epoch
            make = training.ahead = Ahead(self._make, (config.steps - 1) // renew)
        number, item = -1, None
        for step in range(training.global_step, config.steps):
            if step // renew != number:
                number = step // renew
                item = make(number)
            assert item is not None
            yield item
        training.close()  # now, and not when somebody collects the garbage

    def _make(self, number: int) -> tuple[GraphBatch, int]:
        training = self.training
        whole = training.problem.batch(TRAINING, number, training.config.graphs)
        return training.prepare(_share(whole, training.global_rank, training.trainer.world_size)), len(whole.y)


def _throws(model: GraphModel) -> bool:
    solver = getattr(inner_model(model), "solver", None)
    return solver is not None and solver.throw


def _check(not_converged: int, not_finite: int) -> None:
    """Raise what steps would have raised one by one, had they looked."""
    when = f"in the steps so far, of which every {LOG_EVERY}th looks; capture=False names the graph that is the first"
    if not_converged:
        raise ConvergenceError(f"{not_converged} graphs did not reach the tolerance {when}")
    if not_finite:
        raise ConvergenceError(f"{not_finite} steps had a loss or a gradient that is not finite {when}")


def _share(batch: GraphBatch, rank: int, world: int) -> GraphBatch:
    if world == 1:
        return batch
    return GraphBatch.join(batch.split()[rank::world])


def _as_it_is(item: Any) -> Any:
    """A stream makes whole batches: there is nothing to collate."""
    return item
