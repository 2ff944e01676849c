"""Memory of training against the number of iterations: constant with implicit gradients, as section 4.4 of the paper says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from convergent import weights
from convergent.experiments.experiment import Experiment, Results, Statement
from convergent.experiments.job import Job
from convergent.experiments.peak import peak
from convergent.experiments.runtime import make_case
from convergent.fixed_point import solve
from convergent.implicit import Implicit, Unrolled
from convergent.maps import LinearMap
from convergent.solvers import Picard

GRADIENTS: dict[str, Implicit | Unrolled] = {"Implicit": Implicit(), "Unrolled": Unrolled()}
TOLERANCES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10)  # the same map, solved ever closer
SETTINGS = {"states": 4_000, "actions": 5, "heads": 16, "gamma": 0.95, "seed": 0}
QUICK = {"states": 100, "heads": 2}
VISIBLE = 2**20  # bytes
CONSTANT = 0.05  # states more per iteration that count as none; unrolled gradients have to keep one
LINEAR = 0.01  # distance from a line, relative to the largest number, that counts as none


def measure(settings: dict[str, Any], device: str, *_: Path) -> dict[str, Any]:
    """A forward and backward pass: what autograd keeps between the two, and the most that both need."""
    case = make_case(settings["states"], settings, device, weights.softmax)  # rows sum to gamma: it is the contraction
    inputs = [part.double().requires_grad_() for part in (case.weight, case.bias)]
    solver, gradient = Picard(tol=settings["tol"]), GRADIENTS[settings["gradient"]]
    kept = Kept()

    def train() -> int:
        with torch.autograd.graph.saved_tensors_hooks(kept.take, lambda tensor: tensor):
            solution = solve(LinearMap(case.graph, *inputs), solver, gradient=gradient)
        solution.value.sum().backward()
        return solution.iterations

    train()  # compiles, and keeps what belongs to the graph
    kept.sizes.clear()
    iterations, most = peak(train, device)
    return {"iterations": iterations, "saved": kept.total, "peak": most, "device": torch.device(device).type}


class Kept:
    """Counts what autograd saves; a storage that is saved again and again counts once."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}  # bytes by address: while the graph of autograd lives, no address is used twice

    def take(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self.sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    @property
    def total(self) -> int:
        return sum(self.sizes.values())


class Complexity(Experiment):
    """The bytes that autograd saves are the same on every device and in every run; the peak is that of the device used."""

    name = "complexity"
    title = "Memory of training against the number of iterations"
    deviations: ClassVar[Sequence[str]] = (
        "The paper claims constant memory and shows no measurement of it; this one is ours.",
        "The number of iterations is set by the tolerance, from 1 to 1e-10, on one and the same map in float64, whose weights "
        "are random (softmax) and contract by 0.95.",
    )

    def jobs(self) -> list[Job]:
        settings = SETTINGS | (QUICK if self.quick else {})
        tolerances = TOLERANCES[::3] if self.quick else TOLERANCES
        return [
            Job(f"{gradient} to {tol:g}", "complexity:measure", settings | {"gradient": gradient, "tol": tol})
            for gradient in GRADIENTS
            for tol in tolerances
        ]

    def table(self, results: Results) -> dict[str, Any]:
        settings = SETTINGS | (QUICK if self.quick else {})
        rows: dict[str, dict[str, list[Any]]] = {gradient: {} for gradient in GRADIENTS}
        devices = set()
        for job in self.jobs():
            found = dict(results[job.key]["result"])
            devices.add(found.pop("device"))
            for name, value in found.items():
                rows[job.settings["gradient"]].setdefault(name, []).append(value)
        return {**settings, "devices": sorted(devices), "rows": rows}

    def statements(self, table: dict[str, Any]) -> list[Statement]:
        return [_saved_is_constant(table), _saved_is_linear(table), _peak_is_constant(table)]


def _saved_is_constant(table: dict[str, Any]) -> Statement:
    row = table["rows"]["Implicit"]
    told = f"{_span(row['saved'])} bytes are saved at {_span(row['iterations'])} iterations"
    return Statement("What implicit gradients save does not grow with the number of iterations.", len(set(row["saved"])) == 1, told)


def _saved_is_linear(table: dict[str, Any]) -> Statement:
    row = table["rows"]["Unrolled"]
    slope, off = _line(row["iterations"], row["saved"])
    told = (
        f"{slope:,.0f} bytes more per iteration, from {_span(row['saved'])} bytes; at most {off:.2g} of the largest off this line"
    )
    return Statement("What unrolled gradients save is linear in the number of iterations.", slope > 0 and off < LINEAR, told)


def _peak_is_constant(table: dict[str, Any]) -> Statement:
    """Not to the byte: a solve of many steps may take a buffer more than one of few."""
    text = "The peak memory of a training step with implicit gradients does not grow with the number of iterations."
    row = table["rows"]["Implicit"]
    if None in row["peak"] or min(row["peak"]) < VISIBLE:
        return Statement(text, None, "the peak was not measured, or is too small to be told from what else the process does")
    state = 8 * table["states"] * table["heads"]  # bytes in float64
    share = _line(row["iterations"], row["peak"])[0] / state
    told = f"{_span(row['peak'])} bytes at {_span(row['iterations'])} iterations: {share:.2g} of a state more per iteration"
    return Statement(text, share < CONSTANT, told)


def _line(x: Sequence[int], y: Sequence[int]) -> tuple[float, float]:
    """The slope of the line nearest to the points, and how far they are from it, relative to the largest."""
    across, up = (torch.tensor(numbers, dtype=torch.float64) for numbers in (x, y))
    centred, height = across - across.mean(), up - up.mean()
    slope = float(centred @ height / (centred @ centred))
    return slope, float((height - slope * centred).abs().max() / up.max())


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
