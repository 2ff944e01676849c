"""Pore networks: the two figures of the paper on physical diffusion, and the curves of training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any, ClassVar

import torch

from convergent.experiments.experiment import Experiment, Results, Statement
from convergent.experiments.job import Job
from convergent.experiments.learning import moments, training_job, unseen_graphs
from convergent.experiments.printed import LAYERS_AT
from convergent.experiments.value_iteration import pool
from convergent.tasks.pore_network import NODE_FEATURES, WIDTH
from convergent.training.config import TrainConfig
from convergent.training.models import PORES
from convergent.training.problem import node_errors

LINE = "straight line"  # pressure that falls evenly from inlet to outlet
SOLVERS = ("CGS(4)", "CGS(8)", "CGS(16)")
DEPTHS = tuple(range(1, 9))
BASELINES = ("IGNN", "SSE", *(f"GNN({depth})" for depth in DEPTHS))
TRAINED_ON = (50, 200)  # pores


def sized(pores: int) -> dict[str, Any]:
    """Settings of the task for networks of one size."""
    return {"pores": [pores, pores]}


class Pores(Experiment):
    """Models trained on networks of 50 to 200 pores, each from several seeds; the jobs of all figures."""

    deviations: ClassVar[Sequence[str]] = (
        "Networks lie in a cube of 1 mm, with diameters cut so that no throat has a negative length, as in the published code: "
        "the text's sizes overlap.",
        "Inputs are scaled by means and deviations of 64 networks, with logarithms of sizes beside them: metres are too small.",
        "The cosine of the learning rate starts again every 32 steps, as in the published code; the text does not say.",
        "The model is the best of a run by the error on 64 validation networks, looked at every 50 steps.",
        "IGNN has 64 hidden units; SSE takes means over neighbours, and its map is bounded to contract by 0.9.",
        "Fixed points of CGS are certified to 1e-6 absolute plus 1e-6 relative, where the paper stops after 50 steps at most.",
    )

    @property
    def models(self) -> tuple[str, ...]:
        return ("CGS(4)", "CGS(8)", "IGNN", "GNN(1)", "GNN(2)") if self.quick else (*SOLVERS, *BASELINES)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (100, 400, LAYERS_AT) if self.quick else tuple(range(100, 1001, 100))

    @property
    def networks(self) -> int:
        """Of every size, to test on."""
        return 8 if self.quick else 500

    @property
    def seeds(self) -> tuple[int, ...]:
        return (0, 1) if self.quick else (0, 1, 2, 3, 4)

    def config(self, model: str, seed: int) -> TrainConfig:
        few: dict[str, Any] = {"steps": 32, "graphs": 8, "validate_every": 8, "validation_graphs": 8}
        full: dict[str, Any] = {"steps": 1000, "graphs": 32, "validate_every": 50}
        settings = {"pores": list(TRAINED_ON)}
        return TrainConfig(task=PORES, model=model, seed=seed, task_settings=settings, **(few if self.quick else full))

    def job(self, model: str, seed: int) -> Job:
        tests = {str(size): sized(size) for size in self.sizes}
        return training_job(f"{model} on pore networks, seed {seed}", self.config(model, seed), tests, self.networks)

    def jobs(self) -> list[Job]:
        return [self.job(model, seed) for model in self.models for seed in self.seeds]

    def runs(self, model: str, results: Results) -> dict[str, dict[str, Any]]:
        """What came of a model, by seed."""
        return {str(seed): results[self.job(model, seed).key]["result"] for seed in self.seeds}


class PoreNetworks(Pores):
    name, title = "pore-networks", "Pressure in pore networks: error against their size, and against the layers of a GNN"
    deviations = (
        *Pores.deviations,
        "Errors are means over five training runs, as many as the paper's training curves have; its figure does not say how many.",
        f"The row '{LINE}' is added: what is known without looking at the network.",
    )

    def jobs(self) -> list[Job]:
        return [*(self.line_job(size) for size in self.sizes), *super().jobs()]

    def line_job(self, size: int) -> Job:
        """One for every size: the networks are then at hand for models that the same process tests."""
        settings = {"pores": list(TRAINED_ON), **sized(size)}
        return Job(f"{LINE}, {size} pores", "pores:straight_line", {"task_settings": settings, "graphs": self.networks})

    def table(self, results: Results) -> dict[str, Any]:
        rows = {model: self.row(self.runs(model, results)) for model in self.models}
        line = [results[self.line_job(size).key]["result"]["mse"] for size in self.sizes]
        rows[LINE] = {"mse": line, "parameters": 0}
        return {"sizes": list(self.sizes), "networks": self.networks, "rows": rows}

    def row(self, runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Mean and standard deviation over the networks of all runs, by size; and those of every run."""
        by_seed = {seed: [run["tests"][str(size)]["mse"] for size in self.sizes] for seed, run in runs.items()}
        return {
            "mse": [pool(cells) for cells in zip(*by_seed.values(), strict=True)],
            "parameters": next(iter(runs.values()))["parameters"],
            "seeds": by_seed,
            "solves": [run["solves"] for run in runs.values()],
        }

    # --- statements ---

    def statements(self, table: dict[str, Any]) -> list[Statement]:
        errors = {name: [cell[0] for cell in row["mse"]] for name, row in table["rows"].items()}
        solvers, others = ([name for name in group if name in errors] for group in (SOLVERS, BASELINES))
        deep = [name for name in others if name.startswith("GNN")]
        place = self.sizes.index(LAYERS_AT)
        at_once = {name: [values[place]] for name, values in errors.items()}
        everywhere = [
            self.below(errors, [mine], others, f"{mine} has a smaller error than every baseline, at every size") for mine in solvers
        ]
        return [
            *everywhere,
            self.more_heads(errors, solvers),
            self.below(
                at_once, ["CGS(8)"], ["GNN(1)"], f"CGS(8) is better than GNN(1), which has its encoder, at {LAYERS_AT} pores"
            ),
            self.below(at_once, solvers, deep, f"every CGS is better than every GNN(n) at {LAYERS_AT} pores"),
            *(self.steady(errors, mine) for mine in solvers),
            self.below(errors, solvers, [LINE], f"every CGS is better than the {LINE}, at every size"),
        ]

    def below(self, errors: dict[str, list[float]], mine: Sequence[str], others: Sequence[str], text: str) -> Statement:
        """Whether each of some is below each of the others in every column."""
        pairs = [(own, other) for a in mine for b in others for own, other in zip(errors[a], errors[b], strict=True)]
        wins, worst = sum(own < other for own, other in pairs), max(own / other for own, other in pairs)
        return Statement(
            text, wins == len(pairs), f"in {wins} of {len(pairs)} comparisons; at worst {worst:.2f} times the other's error"
        )

    def more_heads(self, errors: dict[str, list[float]], solvers: Sequence[str]) -> Statement:
        means = [fmean(errors[name]) for name in solvers]
        falls = all(more < fewer for fewer, more in pairwise(means))
        return Statement("more heads give a smaller error, over all sizes", falls, _listed(zip(solvers, means, strict=True)))

    def steady(self, errors: dict[str, list[float]], name: str) -> Statement:
        """From the first size, which is one of training, to the last, which is far from it."""
        first, last = errors[name][0], errors[name][-1]
        ends = zip((f"{self.sizes[0]} pores", f"{self.sizes[-1]} pores"), (first, last), strict=True)
        return Statement(f"the error of {name} does not grow with the size of the network", last <= first, _listed(ends))


def _listed(values: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{name}: {value:.2e}" for name, value in values)


def straight_line(settings: dict[str, Any], device: str, *_: Path) -> dict[str, Any]:
    """Work: the error of a pressure that falls evenly along the flow, on the networks that models are tested on."""
    column = NODE_FEATURES.index("x")
    found = [
        node_errors(1 - batch.x[:, column : column + 1] / WIDTH, batch)["mse"]
        for batch in unseen_graphs(PORES, settings["task_settings"], settings["graphs"])
    ]
    return {"mse": moments(torch.cat(found))}


class TrainingCurves(Pores):
    """Shares all its jobs with ``PoreNetworks``."""

    name, title = "training-curves", "Pore networks: validation error against training steps, over five runs"
    deviations = (
        *Pores.deviations,
        "The error is that on 64 networks that are not trained on, always the same in a run; the paper shows that of training.",
    )

    def table(self, results: Results) -> dict[str, Any]:
        return {"rows": {model: self.curve(self.runs(model, results)) for model in self.models}}

    def curve(self, runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Mean and standard deviation over the runs, and those of every run."""
        by_seed = {seed: [point["mse"] for point in run["curve"]] for seed, run in runs.items()}
        steps = [int(point["step"]) for point in next(iter(runs.values()))["curve"]]
        points = list(zip(*by_seed.values(), strict=True))
        return {"steps": steps, "mean": [*map(fmean, points)], "std": [*map(pstdev, points)], "seeds": by_seed}

    def statements(self, table: dict[str, Any]) -> list[Statement]:
        ends = {name: [run[-1] for run in row["seeds"].values()] for name, row in table["rows"].items()}
        last = {name: median(runs) for name, runs in ends.items()}
        low, high = min(last, key=last.__getitem__), max(last, key=last.__getitem__)
        medians = f"medians, {_listed([(low, last[low]), (high, last[high])])}"
        falls = sum(row["mean"][-1] < row["mean"][0] for row in table["rows"].values())
        apart = {name: max(runs) / min(runs) for name, runs in ends.items()}
        worst = max(apart, key=apart.__getitem__)
        others = max(factor for name, factor in apart.items() if name != worst)
        return [
            Statement(
                "all models end their training with errors within a factor of two",
                last[high] <= 2 * last[low],
                medians,
            ),
            Statement("every model is better after training than at its start", falls == len(last), f"{falls} of {len(last)}"),
            Statement(
                "the runs of every model end with errors within a factor of two",
                apart[worst] <= 2,
                f"at worst {worst}: a factor of {apart[worst]:.1f}; the others: {others:.1f} at most",
            ),
        ]
