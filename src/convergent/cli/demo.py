"""The demonstration: train a small solver for pore networks, test it on networks of other sizes, and write a page."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from convergent.cli import work
from convergent.cli.device import usable
from convergent.errors import expect
from convergent.report import Curve, DemoPage, Network, Points, SizeRow, number, write_demo_page
from convergent.tasks.batch import GraphBatch
from convergent.tasks.pore_network import NODE_FEATURES, WIDTH
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
PAGE, RESULT = "index.html", "demo.json"


@dataclass(frozen=True)
class Test:
    """Networks of one size, with what was predicted for them."""

    batch: GraphBatch
    predicted: torch.Tensor
    row: SizeRow
    straight: float  # the mse of a straight line from inlet to outlet
    seconds: float  # of the prediction, per network


def run(out: Path, steps: int, seed: int, device: str) -> None:
    accelerator = {"cpu": "cpu", "cuda": "gpu"}[usable(device)]
    expect(not (out / PAGE).exists(), "--out", "a new folder", f"{out}, which holds a demonstration")
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
    work.err.print(f"training {MODEL} on pore networks of 50 to 200 pores, made as they are needed", highlight=False)
    resume = (out / "run" / "config.json").exists()  # of a demonstration that was cut off
    try:
        result = train(None if resume else config, out / "run", resume=resume, device=accelerator, progress=True)
    except KeyboardInterrupt:
        work.err.print(f"stopped; all steps are kept. Go on with: convergent demo --out {out}", soft_wrap=True, highlight=False)
        raise
    trained = Trained.load(out / "run", device)
    with work.err.status("testing on networks it has not seen, up to four times as large"):
        tests = [test(trained, size) for size in SIZES]
    write_json(out / RESULT, {"training": result, "tests": [_as_json(found) for found in tests]})
    write_demo_page(out / PAGE, page(out / "run", result, tests))
    columns = ("pores", "mse", "straight line", "mean error", "largest", "iterations", "certified")
    rows = [
        (each.nodes, each.mse, found.straight, each.mean_error, each.largest_error, each.iterations, each.worst_bound)
        for found in tests
        for each in [found.row]
    ]
    title = f"Pressure in {NETWORKS} unseen networks of every size, as a fraction of the inlet's"
    work.out.print(work.table(title, columns, rows))
    work.out.print(f"look at {out / PAGE}", highlight=False, soft_wrap=True)


def test(trained: Trained, size: int) -> Test:
    problem = trained.problem({"pores": [size, size]})
    batch = problem.batch(TEST, size, NETWORKS)
    began = time.perf_counter()
    predicted, certificate = trained(batch)
    seconds = (time.perf_counter() - began) / NETWORKS
    errors = summary(node_errors(predicted, batch))
    straight = 1 - batch.x[:, NODE_FEATURES.index("x")].unsqueeze(1) / WIDTH
    row = SizeRow(
        round(float(batch.sizes.double().mean())),
        NETWORKS,
        errors["mse"],
        errors["mean_error"],
        errors["largest_error"],
        int(certificate.steps.max()),
        float(certificate.bound.max()),
        int((certificate.status == 0).sum()),
    )
    return Test(batch, predicted, row, summary(node_errors(straight, batch))["mse"], seconds)


def _as_json(found: Test) -> dict[str, Any]:
    return {**vars(found.row), "straight_line_mse": found.straight, "seconds_per_network": found.seconds}


def page(run: Path, result: dict[str, Any], tests: list[Test]) -> DemoPage:
    largest = tests[-1]
    metrics, validations = (list(read_rows(run / name)) for name in (METRICS, VALIDATIONS))
    headlines = [
        (f"mean error at {largest.row.nodes} pores", number(largest.row.mean_error)),
        ("of a straight line's squared error", f"{100 * largest.row.mse / largest.straight:.0f} %"),
        ("fixed points certified to", number(max(found.row.worst_bound for found in tests), up=True)),
        ("trained in", f"{result['seconds']:.0f} s"),
    ]
    return DemoPage(
        title="The pressure in a porous rock, learned",
        summary=f"A convergent graph solver with {result['parameters']:,} parameters learned the pressure in random pore networks "
        f"of 50 to 200 pores, and is tested here on networks it has not seen, up to {largest.row.nodes} pores.",
        headlines=headlines,
        curves=[
            Curve([row["step"] for row in metrics], [row["loss"] for row in metrics], "training loss, in variances of the answer"),
            Curve([row["step"] for row in validations], [row["mse"] for row in validations], "mean squared error, held out"),
        ],
        points=[
            Points(f"{found.row.nodes} pores", found.batch.y.flatten().tolist(), found.predicted.flatten().tolist())
            for found in tests
        ],
        rows=[found.row for found in tests],
        network=network(largest),
        provenance={name: result[name] for name in ("config", "commit", "versions", "machine", "date")},
    )


def network(found: Test) -> Network:
    """The first of the networks, every throat once."""
    first = found.batch.split()[0]
    ends = np.unique(np.sort(first.edge_index.numpy(), axis=0), axis=1)
    return Network(first.x[:, :3].numpy() / WIDTH, ends, first.y[:, 0].numpy(), found.predicted[: len(first.x), 0].numpy())
