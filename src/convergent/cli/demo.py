"""The demonstration: train a small solver for pore networks, test it on unseen networks of several sizes, and write a page."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from convergent.cli import work
from convergent.cli.device import usable
from convergent.cli.words import plain
from convergent.errors import expect
from convergent.report import Curve, DemoPage, Network, Points, Score, SizeRow, comparison, write_demo_page
from convergent.report.numbers import duration, fixed, number, percent
from convergent.tasks.batch import GraphBatch
from convergent.tasks.pore_network import NODE_FEATURES, WIDTH, PoreNetwork, as_batch, pressure
from convergent.training.config import TrainConfig
from convergent.training.evaluate import Trained
from convergent.training.models import PORES
from convergent.training.problem import TEST, node_errors, summary
from convergent.training.run import METRICS, VALIDATIONS, read_rows, write_json
from convergent.training.train import train

MODEL = "CGS(8)"
SETTINGS = {"normalization": "softmax", "gamma": 0.9}  # rows that use all of their bound, and reach further than the paper's 0.5
SIZES = (100, 200, 400, 800)  # pores; training sees 50 to 200
NETWORKS = 20  # of every size
REPEATS = 5  # of which the fastest counts
PAGE, RESULT = "index.html", "demo.json"


@dataclass(frozen=True)
class Test:
    """Networks of one size, with the model's predictions for them."""

    batch: GraphBatch
    predicted: Tensor
    row: SizeRow
    seconds: float  # of the prediction of all networks at once, per network


def run(out: Path, steps: int, seed: int, device: str) -> None:
    accelerator = {"cpu": "cpu", "cuda": "gpu"}[usable(device)]
    expect(not (out / PAGE).exists(), "--out", "a folder without a finished demonstration", f"{out}, which contains {PAGE}")
    config = TrainConfig(
        task=PORES,
        model=MODEL,
        model_settings=SETTINGS,
        seed=seed,
        steps=steps,
        schedule="one-cycle",
        rate=3e-3,
        validate_every=max(steps // 30, 1),
    )
    work.err.print(f"training {MODEL} on random pore networks with 50 to 200 pores", highlight=False)
    resume = (out / "run" / "config.json").exists()  # of a demonstration that was interrupted
    try:
        result = train(None if resume else config, out / "run", resume=resume, device=accelerator, progress=True)
    except KeyboardInterrupt:
        work.tell(f"interrupted; to continue: convergent demo --out {quote(str(out))}")
        raise
    trained = Trained.load(out / "run", device)
    with work.err.status("testing on unseen networks, up to four times as large"):
        tests = [test(trained, size) for size in SIZES]
    write_json(out / RESULT, {"training": result, "tests": [_as_json(found) for found in tests]})
    write_demo_page(out / PAGE, page(out / "run", result, tests))
    _show([found.row for found in tests], out / PAGE)


def _show(rows: list[SizeRow], where: Path) -> None:
    """The comparison in a terminal of 80 columns."""
    columns = ("pores", "R²", "R², line", "error", "error, line", "time", "exact solve")
    lines = [
        (
            f"{row.nodes:,}",
            fixed(row.model.r2, 3),
            fixed(row.line.r2, 3),
            percent(row.model.mean_error),
            percent(row.line.mean_error),
            duration(row.seconds),
            duration(row.exact_seconds),
        )
        for row in rows
    ]
    title = f"Pressure in {NETWORKS} unseen networks of each size, predicted from geometry"
    work.out.print(work.table(title, columns, lines))
    about = "R²: share of the variance explained; error: mean absolute error as a share of the inlet pressure; "
    about += "line: a straight line from inlet to outlet; time: for one network, median."
    for words in (about, comparison.compared(rows), comparison.timed(rows), comparison.certificate(rows)):
        work.out.print(words, highlight=False)
    work.out.print(plain(f"page: {where}"), soft_wrap=True)


# --- the test ---


def test(trained: Trained, size: int) -> Test:
    networks = unseen(trained, size)
    batch = GraphBatch.join([as_batch(network) for network in networks])
    seconds_one, exact_seconds = median_seconds((trained, batch.split()), (pressure, networks))
    began = time.perf_counter()
    predicted, certificate = trained(batch)
    seconds = (time.perf_counter() - began) / len(networks)
    line = 1 - batch.x[:, [NODE_FEATURES.index("x")]] / WIDTH
    errors = node_errors(predicted, batch)
    row = SizeRow(
        nodes=round(float(batch.sizes.double().mean())),
        networks=len(networks),
        model=score(predicted, batch),
        line=score(line, batch),
        mean=score(means(batch), batch),
        wins=int((errors["mse"] < node_errors(line, batch)["mse"]).sum()),
        largest_error=float(errors["largest_error"].max()),
        iterations=int(certificate.steps.max()),
        worst_bound=float(certificate.bound.max()),
        converged=int((certificate.status == 0).sum()),
        seconds=seconds_one,
        exact_seconds=exact_seconds,
    )
    return Test(batch, predicted, row, seconds)


def unseen(trained: Trained, size: int) -> list[PoreNetwork]:
    """Test networks of one size; the seeds differ from those of training."""
    sampler = trained.problem({"pores": [size, size]}).settings()
    rng = np.random.default_rng([trained.config.seed, TEST, size])
    return [sampler.network(rng) for _ in range(NETWORKS)]


def score(predicted: Tensor, batch: GraphBatch) -> Score:
    errors = summary(node_errors(predicted, batch))
    inner = batch.x[:, NODE_FEATURES.index("boundary")] == 0
    return Score(r2(predicted, batch), r2(predicted, batch, inner), errors["mean_error"], errors["mse"])


def r2(predicted: Tensor, batch: GraphBatch, chosen: Tensor | None = None) -> float:
    """Share of the variance explained, over the chosen nodes: by network, against its own mean, then averaged over the networks.

    Networks without variance among these nodes are left out.
    """
    here = torch.ones(len(batch.y), dtype=torch.bool) if chosen is None else chosen
    exact, found, of = batch.y[here, 0].double(), predicted[here, 0].double(), batch.batch[here]
    zeros = torch.zeros(batch.num_graphs, dtype=torch.double)
    mean = zeros.index_add(0, of, exact) / zeros.index_add(0, of, torch.ones_like(exact)).clamp(min=1)
    variance = zeros.index_add(0, of, (exact - mean[of]).square())
    error = zeros.index_add(0, of, (exact - found).square())
    varies = variance > 0
    return float((1 - error[varies] / variance[varies]).mean())


def means(batch: GraphBatch) -> Tensor:
    """For every node the mean answer of its network."""
    sums = torch.zeros(batch.num_graphs, 1, dtype=torch.double).index_add(0, batch.batch, batch.y.double())
    return (sums / batch.sizes.unsqueeze(1))[batch.batch]


def median_seconds(*ways: tuple[Callable[[Any], Any], Sequence[Any]]) -> list[float]:
    """The time for one network, by each way: a solve and the networks it solves. The median over the networks.

    Of each network it is the fastest of several repeats, in which the ways take turns: what else runs on the machine then matters
    little, and affects all alike.
    """
    fastest = [[math.inf] * len(networks) for _, networks in ways]
    for solve, networks in ways:
        solve(networks[0])  # not timed: the first call may compile
    for place in range(len(fastest[0])):
        for _ in range(REPEATS):
            for taken, (solve, networks) in zip(fastest, ways, strict=True):
                began = time.perf_counter()
                solve(networks[place])
                taken[place] = min(taken[place], time.perf_counter() - began)
    return [median(taken) for taken in fastest]


def _as_json(found: Test) -> dict[str, Any]:
    row = asdict(found.row)
    model, line, mean = (row.pop(name) for name in ("model", "line", "mean"))
    seconds, exact_seconds, wins = (row.pop(name) for name in ("seconds", "exact_seconds", "wins"))
    return {
        **row,
        **model,
        "straight_line_mse": line["mse"],
        "baselines": {"straight_line": line, "mean": mean},
        "networks_better_than_straight_line": wins,
        "seconds_per_network": found.seconds,
        "median_seconds_one_network": seconds,
        "median_seconds_exact_solve": exact_seconds,
    }


# --- the page ---


def page(run: Path, result: dict[str, Any], tests: list[Test]) -> DemoPage:
    rows = [found.row for found in tests]
    metrics, validations = (list(read_rows(run / name)) for name in (METRICS, VALIDATIONS))
    return DemoPage(
        title="The pressure in every pore, learned from geometry",
        summary=f"In {result['seconds']:,.0f} s a convergent graph solver with {result['parameters']:,} parameters learned to "
        "predict the pressure in each pore of a network it has never seen, from geometry alone. It was trained on random networks "
        f"with 50 to 200 pores and is tested on {sum(row.networks for row in rows)} new ones with about "
        f"{rows[0].nodes:,} to {rows[-1].nodes:,} pores.",
        headlines=headlines(rows),
        curves=[
            Curve([row["step"] for row in metrics], [row["loss"] for row in metrics], "training loss, relative to the variance"),
            Curve([row["step"] for row in validations], [row["mse"] for row in validations], "validation mean squared error"),
        ],
        points=[
            Points(
                f"{found.row.nodes:,} pores",
                found.batch.y.flatten().tolist(),
                found.predicted.flatten().tolist(),
                found.row.model.r2,
            )
            for found in tests
        ],
        rows=rows,
        network=network(tests[-1]),
        provenance={
            **{name: result[name] for name in ("date", "commit")},
            "settings": result["config"],
            **{name: result[name] for name in ("versions", "machine")},
        },
    )


def headlines(rows: list[SizeRow]) -> list[tuple[str, str]]:
    """What the model reaches, beside a good baseline and a bad one, and beside the exact solve."""
    last = rows[-1]
    ours, line = (
        [fixed(pick(scores), 3) for pick in (min, max)]
        for scores in ([row.model.r2 for row in rows], [row.line.r2 for row in rows])
    )
    return [
        (
            "share of the variance explained (R²) on unseen networks, by size; "
            f"a straight line: {line[0]} to {line[1]}, the mean pressure: 0",
            f"{ours[0]} to {ours[1]}",
        ),
        (
            f"mean error at {last.nodes:,} pores, as a share of the inlet pressure; "
            f"a straight line: {percent(last.line.mean_error)}, the mean pressure: {percent(last.mean.mean_error)}",
            percent(last.model.mean_error),
        ),
        (
            f"time of the model for a network of {last.nodes:,} pores; the exact solve takes {duration(last.exact_seconds)}",
            duration(last.seconds),
        ),
        (
            "upper bound on the error of each computed fixed point; it bounds the solver's error, not the model's",
            number(max(row.worst_bound for row in rows), up=True),
        ),
    ]


def network(found: Test) -> Network:
    """The first of the networks, every throat once."""
    first = found.batch.split()[0]
    ends = np.unique(np.sort(first.edge_index.numpy(), axis=0), axis=1)
    return Network(first.x[:, :3].numpy() / WIDTH, ends, first.y[:, 0].numpy(), found.predicted[: len(first.x), 0].numpy())
