"""A whole training step: forward, loss, backward, Adam. Network and data are the same for all; only the fixed point differs.

A network is trained for some steps before it is timed, because the rows of a new one are almost empty and its fixed points easy.
Every repeat starts from the weights, and the state of Adam, that it has then.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks import w1
from benchmarks.measure import OURS, Candidate, Timing, at_rest, interleave
from benchmarks.options import Options
from benchmarks.peers import layers, missing
from benchmarks.report import Case, Report, Target
from benchmarks.w1 import DENSE, INDEX_ADD, TORCHDEQ
from benchmarks.workloads import Workload
from convergent import LinearMap, solve
from convergent.nn.model import GraphModel, Inputs
from convergent.nn.scaler import ScaledModel
from convergent.nn.solver import ConvergentGraphSolver, row_weights
from convergent.tasks.batch import GraphBatch
from convergent.training.config import TrainConfig
from convergent.training.models import PORES, VALUE_ITERATION
from convergent.training.problem import TRAINING, Problem

TOL = 1e-6  # of the models' own solver in float32, absolute and relative to the answer: the two are added
EXACT = 1e-12  # of what everybody is compared with, in float64
SAME = 1e-4  # what the gradient of a step may be off by, relative to its largest entry
FIXED_POINT = "TorchDEQ fixed point"
WHOLE, SOLVES = "whole step", ("solve, forward", "solve, backward")


class Learner(NamedTuple):
    """A network and what trains it."""

    model: GraphModel
    optimizer: torch.optim.Optimizer


class Outcome(NamedTuple):
    """What a step computes before the optimiser moves the weights."""

    loss: Tensor
    gradient: Tensor  # of all parameters, one after the other


@dataclass(frozen=True)
class Lesson:
    """A batch, and a network that has learned from it for a while: where everybody starts."""

    problem: Problem
    learner: Learner
    batch: GraphBatch
    data_seconds: float  # of making the batch

    @property
    def solver(self) -> ConvergentGraphSolver:
        return within(self.learner.model)

    @cached_property
    def work(self) -> Workload:
        """The fixed points of the next step, for peers that know of nothing else; gamma is what the rows promise."""
        batch = self.batch
        with torch.no_grad():
            weight, bias = encoded(self.learner.model, batch)
        return Workload(self.problem.task, batch.edge_index, len(batch.x), batch.batch, weight, bias, self.solver.gamma)

    def fresh(self) -> Learner:
        """The learner as it is now, copied as one, so that the optimiser holds the parameters of the new model."""
        return copy.deepcopy(self.learner)

    def loss(self, model: GraphModel, prediction: Tensor) -> Tensor:
        """The mean over all answers, as in training."""
        return self.problem.loss(model, prediction, self.batch) / len(self.batch.y)

    def settings(self) -> dict[str, Any]:
        config, contraction = self.problem.config, LinearMap(self.batch.graph, self.work.weight, self.work.bias).contraction
        found = {"largest_contraction": float(contraction.max()), "mean_contraction": float(contraction.mean())}
        return {"model": config.model, **self.work.settings(), **found, "rate": config.rate}


def run(options: Options) -> Report:
    warm, rounds = (3, 2) if options.quick else (40, 9)
    budget = options.budget(20.0)
    settings = {"optimizer": "Adam", "steps_before": warm, "same_within": SAME, "rounds": rounds, "budget": budget}
    report = Report("step", options.quick, options.seed, settings)

    def add(case: Case) -> Case:
        report.cases.append(case)
        options.keep(report)
        return case

    few = {"graphs": 4} if options.quick else {}
    options.say("CGS(64)")
    values = begin(TrainConfig(task=VALUE_ITERATION, model="CGS(64)", seed=options.seed, **{"graphs": 64, **few}), warm)
    large = add(compare("CGS(64), value iteration", values, (INDEX_ADD, FIXED_POINT, DENSE), rounds, budget))
    add(divide("CGS(64), value iteration: parts of our step", values, rounds))
    options.say("CGS(8)")
    pores = begin(TrainConfig(task=PORES, model="CGS(8)", seed=options.seed, **few), warm)
    small = add(compare("CGS(8), pore networks", pores, (INDEX_ADD,), rounds, budget, steps=8))
    small.measured = pace(pores, small.timings[OURS])
    add(divide("CGS(8), pore networks: parts of our step", pores, rounds))
    report.targets = [Target("CGS(64) step: dense over ours", large.ratio(DENSE), at_least=10)]
    return report


def begin(config: TrainConfig, warm: int, device: str = "cpu") -> Lesson:
    """The network of a run after some steps on its first batch."""
    problem = Problem.of(config)
    torch.manual_seed(config.seed)
    model = problem.build().to(device)
    start = time.perf_counter()
    batch = problem.batch(TRAINING, 0, config.graphs)
    seconds = time.perf_counter() - start
    batch = batch.to(device)
    lesson = Lesson(problem, Learner(model, torch.optim.Adam(model.parameters(), lr=config.rate)), batch, seconds)
    for _ in range(warm):
        take_step(lesson.learner, lesson)
    return lesson


# --- one step ---


def take_step(learner: Learner, lesson: Lesson, layer: layers.Layer | None = None) -> Tensor:
    model, optimizer = learner
    optimizer.zero_grad()
    loss = lesson.loss(model, predicted(model, lesson.batch, layer))
    loss.backward()
    optimizer.step()
    return loss.detach()


def predicted(model: GraphModel, batch: GraphBatch, layer: layers.Layer | None) -> Tensor:
    """The model as it is or, with a layer, its encoder and its decoder around that."""
    if layer is None:
        return model(batch.x, batch.graph, batch.edge_attr)
    return model.decode(batch.graph, layer(*encoded(model, batch)))


def encoded(model: GraphModel, batch: GraphBatch) -> tuple[Tensor, Tensor]:
    """Weight [E, H] and bias [N, H], and no map of them: the checks in building one are ours to pay, not the peers'."""
    inputs = model.prepare(batch.x, batch.graph, batch.edge_attr, None)
    if isinstance(model, ScaledModel):
        inputs = Inputs(inputs.graph, model.nodes(inputs.nodes), model.edges(inputs.edges))
    solver = within(model)
    bias, logits = solver.encoder(*inputs)
    return row_weights(inputs.graph, logits, solver.normalization, solver.gamma), bias


def within(model: GraphModel) -> ConvergentGraphSolver:
    """The solver between the scalers."""
    solver = model.model if isinstance(model, ScaledModel) else model
    assert isinstance(solver, ConvergentGraphSolver)
    return solver


# --- against the peers ---


def compare(name: str, lesson: Lesson, peers: tuple[str, ...], rounds: int, budget: float, steps: int = 1) -> Case:
    """Everybody's step; where one is too short to time, ``steps`` in a row."""
    exact = exact_layer(lesson)
    tol = TOL * (1 + float(exact(lesson.work.weight, lesson.work.bias).abs().max()))
    case = Case(name, {**lesson.settings(), "tol": tol, "steps_in_a_row": steps})
    contestants: dict[str, layers.Layer | None] = {OURS: None}
    for peer in peers:
        if peer == FIXED_POINT and (reason := missing("torchdeq")):
            case.details[peer] = {"skipped": reason}
            continue
        contestants[peer], case.details[peer] = peer_layer(peer, lesson, tol)
    truth = outcome(lesson, exact)
    for peer, layer in contestants.items():
        case.errors[peer] = errors(outcome(lesson, layer), truth)
        case.details.setdefault(peer, {})["reached"] = case.errors[peer]["gradient"] <= SAME
    case.details[OURS].update(forward_method(lesson))
    case.timings = interleave({peer: candidate(lesson, layer, steps) for peer, layer in contestants.items()}, rounds, budget)
    return case


def peer_layer(peer: str, lesson: Lesson, tol: float) -> tuple[layers.Layer, dict[str, Any]]:
    """The paper's fixed point by the paper's rule; the others to the error that ours may have in its largest answer."""
    if peer == DENSE:
        return layers.dense_layer(lesson.work), {}
    if peer == INDEX_ADD:
        return layers.index_add_layer(lesson.work, tol), {}
    settings = torchdeq_settings(lesson, tol)
    return layers.torchdeq_layer(lesson.work, settings), asdict(settings)


def torchdeq_settings(lesson: Lesson, tol: float) -> layers.DEQ:
    """Just good enough for this very step, as in w1."""
    work, arriving = lesson.work, arriving_gradient(lesson)
    reference = w1.forward_backward(layers.index_add_layer(work, EXACT), work, arriving, torch.float64)
    floor = w1.errors(w1.forward_backward(layers.index_add_layer(work, tol), work, arriving), reference)
    wanted = {part: max(tol if part == "value" else TOL, 1.5 * error) for part, error in floor.items()}
    return w1.calibrated_torchdeq(TORCHDEQ[FIXED_POINT], work, arriving, reference, wanted)


def arriving_gradient(lesson: Lesson) -> Tensor:
    """What the decoder sends back to the fixed points, [N, H]."""
    model, work = lesson.learner.model, lesson.work
    x = exact_layer(lesson)(work.weight, work.bias).requires_grad_()
    return torch.autograd.grad(lesson.loss(model, model.decode(lesson.batch.graph, x)), x)[0]


def exact_layer(lesson: Lesson) -> layers.Layer:
    """Fixed points in float64, and nothing else: around them the network rounds as it does for everybody.

    By plain iteration: on two threads ``torch.linalg.solve`` fails on batches of more than 150 unknowns (pytorch issue 142815).
    """
    layer = layers.index_add_layer(lesson.work, EXACT)
    return lambda weight, bias: layer(weight.double(), bias.double()).float()


def outcome(lesson: Lesson, layer: layers.Layer | None) -> Outcome:
    learner = lesson.fresh()
    loss = take_step(learner, lesson, layer)
    return Outcome(loss, flat_gradient(learner.model))


def flat_gradient(model: GraphModel) -> Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def errors(answer: Outcome, truth: Outcome) -> dict[str, float]:
    """Of the gradient relative to its largest entry, of the loss relative to itself."""
    gradient = float((answer.gradient.double() - truth.gradient).abs().max() / truth.gradient.abs().max())
    return {"gradient": gradient, "loss": float((answer.loss.double() - truth.loss).abs() / truth.loss)}


def candidate(lesson: Lesson, layer: layers.Layer | None, steps: int) -> Candidate:
    def take(learner: Learner) -> None:
        for _ in range(steps):
            take_step(learner, lesson, layer)

    return at_rest(Candidate(take, prepare=lesson.fresh, count=steps), lesson.batch.x.device)


def forward_method(lesson: Lesson) -> dict[str, Any]:
    solution = solve(LinearMap(lesson.batch.graph, lesson.work.weight, lesson.work.bias), lesson.solver.solver)
    return {"method": solution.method, "iterations": solution.iterations, "certified": float(solution.error_bound.max())}


def pace(lesson: Lesson, timing: Timing) -> dict[str, Any]:
    """How fast training goes, and what is left of that where new graphs are made as often as a run makes them."""
    step, renew = timing.median, lesson.problem.config.renew or lesson.problem.renew
    return {
        "steps_per_second": 1 / step,
        "data_seconds": lesson.data_seconds,
        "steps_between_new_data": renew,
        "steps_per_second_with_data": renew / (renew * step + lesson.data_seconds),
    }


# --- our own, in parts ---


def divide(name: str, lesson: Lesson, rounds: int) -> Case:
    """Where our step spends its time: the ratio of a part is its share."""
    case = Case(name, lesson.settings(), ours=WHOLE)
    timings: dict[str, Timing] = {}
    learner = lesson.fresh()
    loss = step_in_parts(learner, lesson, timings)  # not counted, but compared: the parts make up the whole
    case.errors[WHOLE] = errors(Outcome(loss, flat_gradient(learner.model)), outcome(lesson, None))
    timings.clear()
    for _ in range(2 * rounds):
        step_in_parts(lesson.fresh(), lesson, timings)
    whole = [sum(seconds) for seconds in zip(*(timing.seconds for timing in timings.values()), strict=True)]
    case.timings = {WHOLE: Timing(whole), **timings}
    case.measured["share_of_solves"] = sum(timings[part].median for part in SOLVES) / case.timings[WHOLE].median
    return case


def step_in_parts(learner: Learner, lesson: Lesson, timings: dict[str, Timing]) -> Tensor:
    """A step cut before and behind the fixed points. Gradients are carried over the cuts, so that every part has its own time."""
    (model, optimizer), batch, clock = learner, lesson.batch, partial(_clock, timings)
    with clock("zero_grad"):
        optimizer.zero_grad()
    with clock("encoder, forward"):
        weight, bias = encoded(model, batch)
    given = [tensor.detach().requires_grad_() for tensor in (weight, bias)]
    with clock(SOLVES[0]):
        x = solve(LinearMap(batch.graph, *given), within(model).solver).value
    found = x.detach().requires_grad_()
    with clock("decoder and loss, forward"):
        loss = lesson.loss(model, model.decode(batch.graph, found))
    with clock("decoder and loss, backward"):
        loss.backward()
    with clock(SOLVES[1]):
        x.backward(found.grad)
    with clock("encoder, backward"):
        torch.autograd.backward((weight, bias), [tensor.grad for tensor in given])
    with clock("optimiser"):
        optimizer.step()
    return loss.detach()


@contextmanager
def _clock(timings: dict[str, Timing], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    timings.setdefault(name, Timing()).seconds.append(time.perf_counter() - start)
