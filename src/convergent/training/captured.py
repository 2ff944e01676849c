"""A training step that is recorded once as a CUDA graph and then replayed, so that no step waits for Python.

A recorded step reads the same tensors every time. Batches are therefore padded to a common size (``Capacity``) and copied into
place; where one does not fit, the step is recorded again. On a CPU the same work runs on the same tensors, unrecorded.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from convergent.graph import Graph
from convergent.maps.base import max_degree
from convergent.nn.model import GraphModel
from convergent.nn.scaler import ScaledModel
from convergent.nn.solver import ConvergentGraphSolver
from convergent.solvers import Auto
from convergent.tasks.batch import GraphBatch
from convergent.training.config import TrainConfig
from convergent.training.ledger import Ledger
from convergent.training.problem import Generated, Problem

ROOM, STEP = 1.15, 64  # a capacity is so many times what is needed, in multiples of this
LEAST_DEGREE = 16  # that a recorded step allows for, however short the rows it was recorded with
LONGEST_ROW, LARGEST_GRAPH = 1024, 4096  # HEAVY and PIECE of kernels/cuda.py: beyond them the host cuts a structure up

Loss = Callable[[GraphModel, Tensor, GraphBatch], Tensor]


def can_capture(config: TrainConfig, problem: Problem, model: GraphModel, device: torch.device, processes: int) -> bool:
    """Whether steps can be recorded: all they do is known beforehand, and nothing in them asks the host."""
    asked = config.capture and processes == 1 and device.type == "cuda" and importlib.util.find_spec("triton") is not None
    # one-cycle also changes the momenta, which are numbers in the recording
    return asked and config.schedule != "one-cycle" and isinstance(problem, Generated) and _settles_at_once(inner_model(model))


def inner_model(model: GraphModel) -> GraphModel:
    return model.model if isinstance(model, ScaledModel) else model


def _settles_at_once(model: GraphModel) -> bool:
    """A linear map per node without chance in it, solved by the one kernel that needs no second look."""
    if not isinstance(model, ConvergentGraphSolver) or model.readout is not None or model.settings["dropout"]:
        return False
    solver = model.solver
    plain = type(solver) is Auto and solver.max_iterations is None and solver.certify != "tight"
    return plain and model.nonlinearity == "identity"


class Capacity:
    """The size that batches are padded to. It grows where one does not fit, and never shrinks."""

    def __init__(self) -> None:
        self.nodes = self.edges = self.graphs = 0

    def pad(self, batch: GraphBatch) -> GraphBatch:
        if not self.fits(batch):
            self.grow(batch)
        return batch.padded(self.nodes, self.edges, self.graphs)

    def fits(self, batch: GraphBatch) -> bool:
        """At least one node and one graph stay free for padding, and enough nodes that none has too many self loops."""
        nodes, edges = self.nodes - len(batch.x), self.edges - batch.edge_index.shape[1]
        return nodes > 0 and 0 <= edges <= nodes * _loops(batch) and self.graphs > batch.num_graphs

    def grow(self, batch: GraphBatch) -> None:
        self.graphs = max(self.graphs, _roomy(batch.num_graphs))
        self.edges = max(self.edges, _roomy(batch.edge_index.shape[1]))
        spare = 1 + (self.edges - batch.edge_index.shape[1]) // _loops(batch)
        self.nodes = max(self.nodes, _roomy(len(batch.x)), _rounded(len(batch.x) + spare))


def _loops(batch: GraphBatch) -> int:
    """Self loops of one node of the padding, at most: not many more than the edges of other nodes."""
    return max(LEAST_DEGREE, 2 * batch.edge_index.shape[1] // max(len(batch.x), 1))


def _roomy(count: int) -> int:
    return _rounded(ROOM * max(count, 1))


def _rounded(count: float) -> int:
    return STEP * math.ceil(count / STEP)


class CapturedStep:
    """Forward, loss, backward, clipping and the optimiser's step as one, with a ledger of what came of it.

    The loss is the mean over all answers. What a recorded solve could not do is told by the ledger, not raised: look at it.

    Args:
        model: whose solves look at nothing on the host while they are recorded.
        loss: of the model, a prediction and a batch, summed over the batch; padding has no weight in it.
        optimizer: Adam. Its rates become tensors, which a schedule changes in place.
        clip: the largest norm of a gradient; None: any.
        ledger: where the steps are counted.
    """

    def __init__(
        self,
        model: GraphModel,
        loss: Loss,
        optimizer: torch.optim.Optimizer,
        clip: float | None = None,
        ledger: Ledger | None = None,
    ):
        self.model, self.loss, self.optimizer, self.clip = model, loss, optimizer, clip
        self.ledger = Ledger() if ledger is None else ledger
        self.device = next(model.parameters()).device
        self.parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self.capacity = Capacity()
        self.held: GraphBatch | None = None  # the tensors that are read
        self.shown: GraphBatch | None = None  # the batch they were copied from
        self.graphs = 0  # of the last batch, without padding
        self.recordings = 0
        self.recording: torch.cuda.CUDAGraph | None = None
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        as_tensors(optimizer, self.device)

    def prepare(self, batch: GraphBatch) -> GraphBatch:
        """A batch as a step takes it: padded, indexed both ways and in pinned memory; all of it can be done in another thread.

        A batch whose structure the kernels have to cut up is not padded: its steps are not recorded.
        """
        padded = self.capacity.pad(batch)
        ready = padded if in_one_piece(padded.graph) else batch
        ready.graph.transpose()
        return ready.pinned(self.device) if self.device.type == "cuda" else ready

    def __call__(self, batch: GraphBatch) -> Tensor:
        """A step with a prepared batch; the loss, on the device, until the next step overwrites it."""
        if batch.real is None:  # not padded
            self.graphs, self.shown = batch.num_graphs, None
            self._eagerly(batch.to(self.device))
        elif batch is self.shown:
            self._again()
        else:
            self.graphs, self.shown = int(batch.real.sum()), batch
            if self.held is not None and _fits(self.held.graph, batch.graph):
                self.held.overwrite(batch)
                self._again()
            else:
                self._record(batch)
        self.ledger.graphs += self.graphs
        return self.ledger.loss

    def _again(self) -> None:
        if self.recording is not None:
            self.recording.replay()
        else:
            assert self.held is not None
            self._work(self.held)

    def _record(self, batch: GraphBatch) -> None:
        """The first step at this size, which makes the optimiser's state and compiles kernels, and a recording of the next."""
        if self.recording is not None:
            torch.cuda.synchronize(self.device)  # its memory goes back when it does, and it may still be running
        self.recording, self.recordings = None, self.recordings + 1
        self.held = batch.mapped(lambda tensor: tensor.to(self.device, copy=True))
        for each in (self.held.graph, self.held.graph.transpose()):
            # numbers that are read by the host are part of the recording: leave some room
            each.cache["max_degree"] = min(max(LEAST_DEGREE, 2 * max_degree(each)), LONGEST_ROW)
        self._eagerly(self.held)
        if self.stream is None:
            return
        recording = torch.cuda.CUDAGraph()
        # thread_local: the thread that makes the next batch may go on
        with torch.cuda.graph(recording, stream=self.stream, capture_error_mode="thread_local"):
            self._work(self.held)
        self.recording = recording

    def _eagerly(self, batch: GraphBatch) -> None:
        """Off the main stream, as a recording is: nodes of the autograd graph remember where they were first used."""
        if self.stream is None:
            self._work(batch)
            return
        here = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(here)
        with torch.cuda.stream(self.stream), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*capturable=True")  # Adam's advice to those who never record
            self._work(batch)
        here.wait_stream(self.stream)

    def _work(self, batch: GraphBatch) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        prediction, solution = self.model(batch.x, batch.graph, batch.edge_attr, return_solution=True)
        answers = max(len(batch.y), 1) if batch.weight is None else batch.weight.sum().clamp(min=1)
        loss = self.loss(self.model, prediction, batch) / answers
        loss.backward()
        norm = torch.nn.utils.get_total_norm([each.grad for each in self.parameters if each.grad is not None])
        if self.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.clip, norm)
        self.optimizer.step()
        self.ledger.add(loss.detach(), solution, batch.real, norm)


def in_one_piece(graph: Graph) -> bool:
    """Whether kernels take its rows and graphs as they are. Asked on the CPU, and the answers are kept in the cache."""
    both = (graph, graph.transpose())
    return graph.largest <= LARGEST_GRAPH and all(max_degree(each) <= LONGEST_ROW and each.small is None for each in both)


def _fits(held: Graph, graph: Graph) -> bool:
    """Whether a structure can take the place of the one that was recorded."""
    sizes = [[tensor.shape for tensor in each.tensors()] for each in (held, graph)]
    pairs = ((held, graph), (held.transpose(), graph.transpose()))
    return sizes[0] == sizes[1] and all(max_degree(new) <= max_degree(old) for old, new in pairs)


# --- the optimiser's state ---


def as_tensors(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Adam such that all it reads and writes is on the device, also where its state comes from a checkpoint."""
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(float(group["lr"]), dtype=torch.float32, device=device)
        if device.type != "cuda":
            continue
        group.update(fused=True, capturable=True)
        for parameter in group["params"]:
            if state := optimizer.state.get(parameter):
                state["step"] = state["step"].to(device, torch.float32)


def as_numbers(checkpoint: dict[str, Any]) -> None:
    """Undo that in a checkpoint, which can then be resumed anywhere."""
    for state in checkpoint["optimizer_states"]:
        for group in state["param_groups"]:
            group.update(lr=float(group["lr"]), fused=None, capturable=False)
    for schedule in checkpoint["lr_schedulers"]:
        schedule["_last_lr"] = [float(rate) for rate in schedule["_last_lr"]]
