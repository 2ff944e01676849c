"""A whole training step of CGS(64) on value iteration: replayed as training does it, as called from Python, and with its peers.

The peers' steps are ours with another fixed point, called from Python: the way they stop, by looking at the device, cannot be
replayed. A run is timed with everything around its steps, new graphs included.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile

from benchmarks import step
from benchmarks.cuda.clock import wall_time
from benchmarks.measure import Candidate, Timing
from benchmarks.options import Options
from benchmarks.report import Report, Target
from benchmarks.w1 import DENSE, INDEX_ADD
from convergent.training.captured import CapturedStep
from convergent.training.config import TrainConfig
from convergent.training.models import VALUE_ITERATION
from convergent.training.train import train

REPLAYED = "convergent, replayed"
SAME_STEPS = 4  # after which the losses of a replayed and a called network are compared


def run(report: Report, options: Options) -> None:
    graphs, heads, warm, rounds, steps = (4, 8, 3, 1, (2, 4)) if options.quick else (64, 64, 40, 5, (400, 1600))
    config = TrainConfig(task=VALUE_ITERATION, model=f"CGS({heads})", seed=options.seed, graphs=graphs)
    report.settings["training"] = {"graphs": graphs, "heads": heads, "steps_before": warm, "rounds": rounds, "run": steps}
    options.say("training step")
    lesson = step.begin(config, warm, options.device)
    case = step.compare(f"CGS({heads}), a training step", lesson, (INDEX_ADD, DENSE), rounds, options.budget(3.0))
    count = 2 if options.quick else 50
    case.timings[REPLAYED], case.errors[REPLAYED] = replayed(lesson, count, options)
    case.measured = pace(config, case.timings[REPLAYED].median, steps, options.device)
    report.cases.append(case)
    title = f"CGS({heads}) training step"
    for peer, wanted in ((DENSE, 5), (INDEX_ADD, 3)):
        report.targets.append(Target(f"{title}: {peer}", case.ratio(peer, ours=REPLAYED), at_least=wanted))
    options.keep(report)


def replayed(lesson: step.Lesson, count: int, options: Options) -> tuple[Timing, dict[str, float]]:
    """Steps in a row as training takes them, and how far the loss is from that of steps that are called."""
    learner, called = lesson.fresh(), lesson.fresh()
    recorded = CapturedStep(learner.model, lesson.problem.loss, learner.optimizer)
    batch = recorded.prepare(lesson.batch.to("cpu"))
    mine = [float(recorded(batch)) for _ in range(SAME_STEPS)][-1]
    theirs = [float(step.take_step(called, lesson)) for _ in range(SAME_STEPS)][-1]

    def take(_: None) -> None:
        for _ in range(count):
            recorded(batch)

    timing = wall_time(Candidate(take, count=count), options.device, 2 if options.quick else 20)
    return timing, {"loss": abs(mine - theirs) / theirs}


def pace(config: TrainConfig, step_seconds: float, steps: tuple[int, int], device: str) -> dict[str, Any]:
    """Steps per second of two whole runs, one longer than the other, so that what happens once does not count."""
    seconds = [run_of(config, count, device) for count in steps]
    each = (seconds[1] - seconds[0]) / (steps[1] - steps[0])
    found = {"steps_per_second_replayed": 1 / step_seconds, "steps_per_second_of_a_run": 1 / each}
    return {**found, "share_busy_in_a_run": share_busy(config, steps[0], device)}


def run_of(config: TrainConfig, steps: int, device: str) -> float:
    settings = {**config.to_json(), "steps": steps, "validate_every": 10**6, "checkpoint_every": 10**6}
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        train(TrainConfig(**settings), Path(folder) / "run", device=device)
        return time.perf_counter() - began


def share_busy(config: TrainConfig, steps: int, device: str) -> float | None:
    """The share of time that some kernel is running, in the second half of a run: by then everything is compiled."""
    if device != "cuda":
        return None
    with profile(activities=[ProfilerActivity.CUDA]) as watched:
        run_of(config, steps, device)
    spans = sorted((event.time_range.start, event.time_range.end) for event in watched.events() if event.device_type.name == "CUDA")
    middle, end = (spans[0][0] + spans[-1][1]) / 2, max(stop for _, stop in spans)
    busy, reached = 0.0, middle
    for start, stop in spans:
        busy += max(0.0, stop - max(start, reached))
        reached = max(reached, stop)
    return busy / (end - middle)
