"""Your own networks, from CSV to prediction: the voltages in random circuits of resistors.

    python examples/own_data.py [--out circuits] [--circuits 60] [--steps 300]

Writes two tables as you would have them, trains on them, predicts circuits that are larger than any in the tables, and
compares with the exact voltages. The same from a shell:

    convergent data folder --data circuits/train --target voltage          # is all of it readable?
    convergent train folder --data circuits/train --target voltage --out circuits/run
    convergent predict circuits/run circuits/larger --out circuits/answers
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
import pandas

from convergent.training.config import TrainConfig
from convergent.training.predict import predict
from convergent.training.train import train


def circuit(side: int, rng: np.random.Generator) -> tuple[list[list[object]], list[list[object]]]:
    """A grid of joints with resistors between neighbours; some joints are sources at 1 V, some are grounded."""
    name = np.arange(side * side).reshape(side, side)
    across, down = (name[:, :-1].ravel(), name[:, 1:].ravel()), (name[:-1].ravel(), name[1:].ravel())
    ends = np.concatenate([np.stack(across, 1), np.stack(down, 1)])
    ohm = rng.lognormal(sigma=0.5, size=len(ends))
    matrix = np.zeros((side * side, side * side))
    for (a, b), r in zip(ends, ohm, strict=True):  # Kirchhoff: the currents of a joint add up to nothing
        matrix[[a, b], [a, b]] += 1 / r
        matrix[[a, b], [b, a]] -= 1 / r
    kind = rng.choice(["joint", "source", "ground"], side * side, p=[0.8, 0.1, 0.1])
    kind[:2] = "source", "ground"
    given = kind != "joint"
    volt = (kind == "source").astype(float)
    volt[~given] = np.linalg.solve(matrix[~given][:, ~given], -matrix[~given][:, given] @ volt[given])
    nodes = [[f"joint {node}", kind[node], volt[node]] for node in range(side * side)]
    both = [(a, b, r) for (a, b), r in zip(ends, ohm, strict=True)] + [(b, a, r) for (a, b), r in zip(ends, ohm, strict=True)]
    return nodes, [[f"joint {a}", f"joint {b}", r] for a, b, r in both]


def write_tables(folder: Path, sides: list[int], rng: np.random.Generator) -> None:
    """What you may have already: a table of nodes and a table of edges."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "nodes.csv").open("w", newline="") as nodes, (folder / "edges.csv").open("w", newline="") as edges:
        writers = csv.writer(nodes), csv.writer(edges)
        writers[0].writerow(["graph", "node", "kind", "voltage"])
        writers[1].writerow(["graph", "source", "target", "ohm"])
        for number, side in enumerate(sides):
            for writer, rows in zip(writers, circuit(side, rng), strict=True):
                writer.writerows([f"circuit {number}", *row] for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("circuits"))
    parser.add_argument("--circuits", type=int, default=60)
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    write_tables(given.out / "train", rng.integers(4, 8, given.circuits).tolist(), rng)
    write_tables(given.out / "larger", [12] * 10, rng)

    settings = {"path": str(given.out / "train"), "targets": ["voltage"], "logs": ["ohm"]}
    model_settings = {"normalization": "softmax", "gamma": 0.9}
    config = TrainConfig(
        task="folder", model="CGS(8)", steps=given.steps, schedule="one-cycle", rate=3e-3,
        task_settings=settings, model_settings=model_settings,
    )  # fmt: skip
    result = train(config, given.out / "run", progress=True)
    print(f"held-out circuits: mean error {result['validation']['mean_error']:.4f} V")

    predict(given.out / "run", given.out / "larger", given.out / "answers")
    answers, exact = (pandas.read_csv(given.out / path) for path in ("answers/predictions.csv", "larger/nodes.csv"))
    graphs = pandas.read_csv(given.out / "answers" / "graphs.csv")
    print(f"circuits three times as large: mean error {abs(answers['voltage'] - exact['voltage']).mean():.4f} V,", end=" ")
    print(f"{(graphs['status'] == 'converged').sum()} of {len(graphs)} certified, to {graphs['error_bound'].max():.0e}")
    print(f"always saying the mean: mean error {abs(exact['voltage'] - exact['voltage'].mean()).mean():.4f} V")


if __name__ == "__main__":
    main()
