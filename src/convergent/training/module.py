"""The training loop's body, for Lightning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightning
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from convergent.nn.model import GraphModel
from convergent.solvers import Solution
from convergent.tasks.batch import GraphBatch
from convergent.training.config import TrainConfig
from convergent.training.problem import TRAINING, Problem, summary

RESTART = 32  # steps of one cosine, as in the paper's code


class Training(lightning.LightningModule):
    """A model, its loss, its optimiser, and the stream of graphs it learns from.

    With several processes each takes its share of the graphs of a step. The loss is divided by the nodes of all shares, so that
    the mean gradient is that of one process.
    """

    def __init__(self, config: TrainConfig, problem: Problem, model: GraphModel):
        super().__init__()
        self.config, self.problem, self.model = config, problem, model
        self.solves = {"graphs": 0, "not_converged": 0, "most_iterations": 0}
        self.worst_bound = 0.0
        self.held_out: GraphBatch | None = None
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

    def train_dataloader(self) -> DataLoader[tuple[GraphBatch, int]]:
        return DataLoader(Stream(self), batch_size=None, collate_fn=_as_it_is)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return batch[0].to(device), batch[1]

    def training_step(self, item: tuple[GraphBatch, int], index: int) -> Tensor:
        batch, answers = item
        prediction, solution = self.model(batch.x, batch.graph, batch.edge_attr, return_solution=True)
        loss = self.problem.loss(self.model, prediction, batch) * (self.trainer.world_size / max(answers, 1))
        if solution is not None:
            self.count(solution)
        self.log("loss", loss.detach(), prog_bar=True, batch_size=batch.num_graphs)
        return loss

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

    def count(self, solution: Solution) -> None:
        """What is known of the solves so far."""
        self.solves["graphs"] += len(solution.steps)
        self.solves["not_converged"] += int((~solution.converged).sum())
        self.solves["most_iterations"] = max(self.solves["most_iterations"], solution.iterations)
        finite = solution.error_bound[torch.isfinite(solution.error_bound)]
        self.worst_bound = max(self.worst_bound, float(finite.max()) if finite.numel() else 0.0)
        self.log("iterations", float(solution.iterations), prog_bar=True, batch_size=1)
        self.log("worst_bound", self.worst_bound, prog_bar=True, batch_size=1)

    def totals(self) -> tuple[dict[str, int], float]:
        """The solves of all processes, and their worst bound; every process has to ask."""
        reduce = self.trainer.strategy.reduce
        names = {"graphs": "sum", "not_converged": "sum", "most_iterations": "max"}
        solves = {
            name: int(reduce(torch.tensor(self.solves[name], device=self.device), reduce_op=how)) for name, how in names.items()
        }
        bound = torch.tensor(self.worst_bound, dtype=torch.float64, device=self.device)
        return solves, float(reduce(bound, reduce_op="max"))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["solves"], checkpoint["worst_bound"] = self.totals()
        checkpoint["random"] = torch.get_rng_state()  # of dropout

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.random = checkpoint["random"]
        if self.global_rank == 0:  # the others start from nothing: it is all of theirs
            self.solves, self.worst_bound = checkpoint["solves"], checkpoint["worst_bound"]

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.random is not None:  # not before: loaders draw numbers when they start
            torch.set_rng_state(self.random.cpu())
            self.random = None


class Stream(IterableDataset[tuple[GraphBatch, int]]):
    """The graphs of every step from the present one on, with the number of answers of all shares."""

    def __init__(self, training: Training):
        self.training = training

    def __iter__(self) -> Iterator[tuple[GraphBatch, int]]:
        training, config = self.training, self.training.config
        renew = config.renew or training.problem.renew
        number, share = -1, None
        for step in range(training.global_step, config.steps):
            if step // renew != number:
                number = step // renew
                whole = training.problem.batch(TRAINING, number, config.graphs)
                share = _share(whole, training.global_rank, training.trainer.world_size)
            assert share is not None
            yield share, len(whole.y)


def _share(batch: GraphBatch, rank: int, world: int) -> GraphBatch:
    if world == 1:
        return batch
    return GraphBatch.join(batch.split()[rank::world])


def _as_it_is(item: Any) -> Any:
    """A stream makes whole batches: there is nothing to collate."""
    return item
