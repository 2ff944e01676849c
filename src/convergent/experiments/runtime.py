"""Direct against iterative solution (figure "Runtimes of CGS models"): seconds and memory against the number of states."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from convergent import weights
from convergent.experiments.experiment import Experiment, Results, Statement
from convergent.experiments.job import Job
from convergent.experiments.peak import GIBIBYTE, limited, peak, ran_out
from convergent.fixed_point import solve
from convergent.graph import Graph
from convergent.maps import LinearMap
from convergent.solvers import Auto, Direct, Picard, Solver

SIZES = (100, 200, 500, 1_000, 2_000, 4_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
# of the figure: CGS(2), five actions, 100 times; gamma as in the appendix on value iteration; 24 GB was the paper's card
SETTINGS = {"heads": 2, "actions": 5, "gamma": 0.5, "repeats": 100, "seed": 0, "most_seconds": 20.0, "most_gibibytes": 24.0}
QUICK = {"repeats": 3, "most_seconds": 2.0, "most_gibibytes": 2.0}
PATIENCE = 5.0  # seconds of repeats: what takes long is repeated less, but three times at least
CAP, STOP = 50, 1e-6  # steps and Frobenius norm of the last one, of the pseudocode in the paper
SMALL = 4_000  # states up to which the paper finds inversion to be faster

INVERSE, ITERATION = "dense inverse (paper)", "dense iteration (paper)"


class Case(NamedTuple):
    """x = W x + b on a random decision process: every state has distinct successors, and is none of them."""

    graph: Graph
    weight: Tensor  # [E, H]
    bias: Tensor  # [N, H]


def make_case(states: int, settings: dict[str, Any], device: str, weigh: Callable[..., Tensor] = weights.degree) -> Case:
    """Drawn edge by edge: a table of all pairs of states would not fit at a million of them."""
    generator, actions, heads = torch.Generator().manual_seed(settings["seed"]), settings["actions"], settings["heads"]
    # distinct steps ahead, from 1 to N - 1: sorted numbers that may be equal, moved apart
    ahead = torch.randint(states - actions, (states, actions), generator=generator).sort(1).values + torch.arange(1, actions + 1)
    state = torch.arange(states).unsqueeze(1)
    edges = torch.stack([state.expand_as(ahead), (state + ahead) % states]).view(2, -1)
    graph = Graph(edges.to(device), states)
    logits = torch.randn(states * actions, heads, generator=generator).to(device)
    bias = torch.randn(states, heads, generator=generator).to(device)
    return Case(graph, weigh(graph, logits, settings["gamma"]), bias)


# --- the methods: all from weights of edges and biases to the fixed point [N, H] ---


def dense(case: Case) -> tuple[Tensor, Tensor]:
    """W [H, N, N] and b [H, N, 1], which the paper works with."""
    heads, nodes = case.bias.shape[1], case.graph.num_nodes
    place = (torch.arange(heads, device=case.bias.device).unsqueeze(1), case.graph.row.long(), case.graph.column.long())
    matrix = case.weight.new_zeros(heads, nodes, nodes).index_put_(place, case.weight.t(), accumulate=True)
    return matrix, case.bias.t().unsqueeze(-1)


def dense_inverse(case: Case) -> Tensor:
    """(I - W)^-1 b, eq. 10 of the paper as it stands."""
    matrix, right = dense(case)
    return (torch.linalg.inv(_identity(matrix) - matrix) @ right).squeeze(-1).t()


def dense_solve(case: Case) -> Tensor:
    """The same without the inverse: a third of the work."""
    matrix, right = dense(case)
    return torch.linalg.solve(_identity(matrix) - matrix, right).squeeze(-1).t()


def dense_iteration(case: Case) -> Tensor:
    """The paper's appendix B, forward pass."""
    return iterate(*dense(case), STOP, CAP).squeeze(-1).t()


@torch.no_grad()
def iterate(matrix: Tensor, right: Tensor, stop: float, cap: int) -> Tensor:
    """x = A x + b for matrices [H, N, N], until the Frobenius norm of a step is below ``stop``, or ``cap`` steps were taken."""
    state = torch.zeros_like(right)
    for _ in range(cap):
        image = torch.bmm(matrix, state) + right
        if torch.linalg.vector_norm(image - state) < stop:
            break
        state = image
    return state


def _identity(matrix: Tensor) -> Tensor:
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def _ours(solver: Solver) -> Callable[[Case], Tensor]:
    return lambda case: solve(LinearMap(*case), solver).value


METHODS: dict[str, Callable[[Case], Tensor]] = {
    INVERSE: dense_inverse,
    ITERATION: dense_iteration,
    "dense LU": dense_solve,
    "Picard": _ours(Picard()),
    "Direct": _ours(Direct()),
    "Auto": _ours(Auto()),
}


# --- the work ---


@torch.no_grad()
def measure(settings: dict[str, Any], *_: Any) -> dict[str, Any]:
    """One method from size to size, on the kind of device that the settings name, until it is too slow or too large."""
    device, cases = settings["device"], []
    with limited(device, settings["most_gibibytes"]) as limit:
        METHODS[settings["method"]](make_case(settings["sizes"][0], settings, device))  # compiles, and loads libraries
        for states in settings["sizes"]:
            cases.append({"states": states, **_measure_one(states, settings, device)})
            if "stopped" in cases[-1]:
                break
    about = {"threads": torch.get_num_threads(), "load": round(os.getloadavg()[0], 2), "memory_limit": limit}
    return {"cases": cases, **about}


def _measure_one(states: int, settings: dict[str, Any], device: str) -> dict[str, Any]:
    case, method = make_case(states, settings, device), METHODS[settings["method"]]
    try:
        first, value = clocked(method, case)  # may compile, and finds what is kept with the graph from then on
        error = float((value - _exact(case)).abs().max())
        if first > settings["most_seconds"]:
            return {"stopped": "time", "seconds": [first], "error": error}
        memory = peak(lambda: clocked(method, case), device)[1]
    except (MemoryError, RuntimeError) as problem:
        if not ran_out(problem):
            raise
        return {"stopped": "memory"}
    return {"seconds": _repeated(method, case, settings["repeats"]), "memory": memory, "error": error}


def _repeated(method: Callable[[Case], Tensor], case: Case, most: int) -> list[float]:
    seconds: list[float] = []
    while len(seconds) < min(most, 3) or (len(seconds) < most and sum(seconds) < PATIENCE):
        seconds.append(clocked(method, case)[0])
    return seconds


def clocked(method: Callable[[Case], Tensor], case: Case) -> tuple[float, Tensor]:
    """Seconds from a device at rest to a device at rest, and what came out."""
    _rest(case.bias)
    start = time.perf_counter()
    value = method(case)
    _rest(value)
    return time.perf_counter() - start, value


def _rest(value: Tensor) -> None:
    if value.is_cuda:
        torch.cuda.synchronize(value.device)


def _exact(case: Case) -> Tensor:
    return solve(LinearMap(case.graph, case.weight.double(), case.bias.double()), Picard(tol=1e-10)).value


# --- the experiments ---


class Runtime(Experiment):
    """On the CPU, whatever device other experiments run on."""

    name = "runtime"
    title = "Runtime of direct and iterative solution on the CPU"
    device: ClassVar[str] = "cpu"
    deviations: ClassVar[Sequence[str]] = (
        "Only the fixed point is timed, from the weights of edges and the biases on; the networks that make these are the same for "
        "all methods and are left out. The figure of the paper times models, and does not say which part.",
        "Weights are random and not learned: gamma sigmoid(e) / d with normal e. Neither cost nor memory of the dense methods "
        "depends on them.",
        "100 repeats where one takes less than 50 ms, otherwise as many as fit into 5 s, and three at least; the table has the "
        "numbers. A method stops at the first size at which a run takes more than 20 s or needs more than 24 GiB (or 80 % of the "
        "memory that is free, if that is less).",
        "The paper does not say what its direct method does beside inverting; here it fills a dense matrix per head, and inverts "
        "that.",
    )

    def jobs(self) -> list[Job]:
        sizes = SIZES[:2] if self.quick else SIZES
        settings = SETTINGS | (QUICK if self.quick else {}) | {"device": self.device, "sizes": list(sizes)}
        return [Job(f"{method} on {self.device}", "runtime:measure", settings | {"method": method}) for method in METHODS]

    def table(self, results: Results) -> dict[str, Any]:
        found = {job.settings["method"]: results[job.key]["result"] for job in self.jobs()}
        settings = self.jobs()[0].settings
        sizes = settings["sizes"][: max(len(result["cases"]) for result in found.values())]
        return {
            **{name: settings[name] for name in (*SETTINGS, "device")},
            "threads": max(result["threads"] for result in found.values()),
            "load": max(result["load"] for result in found.values()),
            "memory_limit": min((result["memory_limit"] for result in found.values() if result["memory_limit"]), default=None),
            "sizes": sizes,
            "rows": {method: _columns(result["cases"], sizes) for method, result in found.items()},
        }

    def statements(self, table: dict[str, Any]) -> list[Statement]:
        return [_faster_when_small(table), _scales_worse(table), _less_memory(table), _ours_fastest(table), _ours_furthest(table)]


class RuntimeGPU(Runtime):
    """The same on a GPU: an experiment of its own, so that neither machine overwrites what the other has measured."""

    name = "runtime-gpu"
    title = "Runtime of direct and iterative solution on a GPU"
    device = "cuda"

    def missing(self) -> str | None:
        return None if torch.cuda.is_available() else "there is no CUDA device"

    def statements(self, table: dict[str, Any]) -> list[Statement]:
        return [*super().statements(table), _inverse_exceeds_memory(table)]


def _columns(cases: list[dict[str, Any]], sizes: Sequence[int]) -> dict[str, Any]:
    """By size, with None from where the method has stopped; a single run that was too slow is kept as why it stopped."""
    done = {case["states"]: case for case in cases if "stopped" not in case}
    last = cases[-1]
    return {
        "median": [statistics.median(done[size]["seconds"]) if size in done else None for size in sizes],
        "seconds": [_moments(done[size]["seconds"]) if size in done else None for size in sizes],
        "repeats": [len(done[size]["seconds"]) if size in done else 0 for size in sizes],
        "memory": [done[size]["memory"] if size in done else None for size in sizes],
        "error": [done[size]["error"] if size in done else None for size in sizes],
        "stopped": {"by": last["stopped"], "at": last["states"]} if "stopped" in last else None,
    }


def _moments(seconds: list[float]) -> list[float]:
    return [statistics.fmean(seconds), statistics.pstdev(seconds)]


# --- what is concluded ---


def _common(table: dict[str, Any], column: str, *methods: str) -> dict[int, list[float]]:
    """By size, the numbers of these methods, where all of them have one."""
    found = zip(table["sizes"], *(table["rows"][method][column] for method in methods), strict=True)
    return {size: list(numbers) for size, *numbers in found if None not in numbers}


def _faster_when_small(table: dict[str, Any]) -> Statement:
    text = f"Up to {SMALL:,} states inversion is faster than iteration (dense, as in the paper)."
    pairs = {size: pair for size, pair in _common(table, "median", INVERSE, ITERATION).items() if size <= SMALL}
    slower = [size for size, (inverse, iteration) in pairs.items() if inverse > iteration]
    told = "; ".join(f"{size:,}: {a:.2g} s against {b:.2g} s" for size, (a, b) in pairs.items())
    return Statement(text, not slower if max(pairs, default=0) == SMALL else None, told)


def _scales_worse(table: dict[str, Any]) -> Statement:
    text = "The time of inversion grows faster with the number of states than that of iteration."
    pairs = _common(table, "median", INVERSE, ITERATION)
    large = {size: pair for size, pair in pairs.items() if size >= 1_000}
    if len(large) < 2:
        return Statement(text, None, "there are not two sizes of 1,000 states or more")
    low, high = min(large), max(large)
    inverse, iteration = (math.log(large[high][i] / large[low][i]) / math.log(high / low) for i in range(2))
    told = f"from {low:,} to {high:,} states as n^{inverse:.2f} and n^{iteration:.2f}"
    return Statement(text, inverse > iteration, told)


def _less_memory(table: dict[str, Any]) -> Statement:
    text = "Iteration needs less memory than inversion."
    pairs = _common(table, "memory", INVERSE, ITERATION)
    if not pairs:
        return Statement(text, None, "the memory was not measured")
    inverse, iteration = pairs[max(pairs)]
    told = f"at {max(pairs):,} states {iteration / GIBIBYTE:.3g} GiB against {inverse / GIBIBYTE:.3g} GiB"
    return Statement(text, iteration < inverse, told)


def _ours_fastest(table: dict[str, Any]) -> Statement:
    text = "Auto is faster than both methods of the paper at every size."
    pairs = _common(table, "median", "Auto", INVERSE, ITERATION)
    gains = {size: min(others) / ours for size, (ours, *others) in pairs.items()}
    told = "; ".join(f"{size:,}: {gain:.3g} times" for size, gain in gains.items())
    return Statement(text, all(gain > 1 for gain in gains.values()) if gains else None, told)


def _ours_furthest(table: dict[str, Any]) -> Statement:
    text = "Auto solves larger graphs than the methods of the paper."
    largest = {method: max(_common(table, "median", method), default=0) for method in ("Auto", INVERSE, ITERATION)}
    told = ", ".join(f"{method} {size:,}" for method, size in largest.items())
    ours, *others = largest.values()
    stopped = all(table["rows"][method]["stopped"] for method in (INVERSE, ITERATION))
    return Statement(text, ours > max(others) if stopped else None, f"the largest number of states solved: {told}")


def _inverse_exceeds_memory(table: dict[str, Any]) -> Statement:
    limit = table["most_gibibytes"]
    text = f"From {SMALL:,} states on the direct method exceeds {limit:.0f} GB of the card."
    needs, stopped = _common(table, "memory", INVERSE), table["rows"][INVERSE]["stopped"]
    reached = max(needs, default=0)
    if reached < SMALL and not stopped:
        return Statement(text, None, "such graphs were not tried")
    told = f"{reached:,} states need {needs[reached][0] / GIBIBYTE:.3g} GiB" if needs else "no size was solved"
    end = f"; stopped by {stopped['by']} at {stopped['at']:,}" if stopped else ""
    return Statement(text, reached < SMALL and stopped["by"] == "memory", told + end)
