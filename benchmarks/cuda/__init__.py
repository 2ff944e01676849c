"""On a CUDA device: one iteration, a whole layer, a training step, a graph that fills the card, growth, and the choice of a method.

Every part adds its cases and targets to one report. ``--quick`` also runs on the CPU, to see that all of it does.
"""

from __future__ import annotations

from importlib import import_module

from benchmarks.cuda.clock import free
from benchmarks.cuda.problem import DEGREE, GAMMA, NEAR
from benchmarks.options import Options
from benchmarks.report import Report

# Each is a module of this package with run(report, options).
PARTS = ("iteration", "layer", "training", "large", "growth", "methods")


def run(options: Options) -> Report:
    """The parts that were asked for, in their order. One that fails is raised when the others are done and written."""
    parts = [part for part in PARTS if part in (options.parts or PARTS)]
    settings = {"device": options.device, "parts": parts, "degree": DEGREE, "near": NEAR, "gamma": GAMMA}
    report = Report("cuda", options.quick, options.seed, settings)
    failures: list[Exception] = []
    for part in parts:
        try:
            import_module(f"benchmarks.cuda.{part}").run(report, options)
        except Exception as failure:
            failure.add_note(f"in the part {part}")
            failures.append(failure)
            report.settings.setdefault("failed", {})[part] = f"{type(failure).__name__}: {failure}"
        options.keep(report)
        free(options.device)
    if failures:
        raise ExceptionGroup("some parts failed; the others are written", failures)
    return report
