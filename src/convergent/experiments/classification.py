"""Graph classification: Table 2 of the paper and the table of its appendix, under two protocols that are never mixed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from convergent.baselines import IGNN
from convergent.experiments import printed, pyg_baselines
from convergent.experiments.experiment import Experiment, Results, Statement
from convergent.experiments.folds import Recipe, Split, Store, cross_validate, side_by_side
from convergent.experiments.ignn_copies import IGNNCopies
from convergent.experiments.job import Job
from convergent.nn.model import count_parameters
from convergent.nn.solver import ConvergentGraphSolver
from convergent.tasks import classification
from convergent.tasks.classification import FOLDS, SETS, Classified, default_cache, protocol_a, protocol_b
from convergent.training.models import CLASSIFICATION, find

SOLVERS = tuple(f"CGS({heads})" for heads in (1, 4, 8, 16, 32))
SOCIAL = ("IMDB-BINARY", "IMDB-MULTI")
PROTOCOLS = {"A": protocol_a, "B": protocol_b}

# What the paper tuned for each set: the activation, the layers of the encoder and of the decoder, and the decoder's dropout.
# Its appendix lists what it chose, but for PTC; those start from MUTAG, as its search did.
CHOSEN: dict[str, dict[str, Any]] = {
    "IMDB-BINARY": {"activation": "silu", "layers": 2, "decoder": [64, 32], "dropout": 0.0},
    "IMDB-MULTI": {"activation": "silu", "layers": 2, "decoder": [64, 32], "dropout": 0.0},
    "MUTAG": {"activation": "leaky_relu", "layers": 2, "decoder": [64, 32], "dropout": 0.0},
    "PROTEINS": {"activation": "leaky_relu", "layers": 2, "decoder": [64, 32], "dropout": 0.2},
    "PTC": {"activation": "leaky_relu", "layers": 2, "decoder": [64, 32], "dropout": 0.0},
    "NCI1": {"activation": "silu", "layers": 2, "decoder": [64, 32], "dropout": 0.0},
}
EPOCHS = {**dict.fromkeys(SETS, 500), "NCI1": 100}


class Classification(Experiment):
    name, title = "classification", "Table 2: graph classification, and the same under IGNN's protocol"
    deviations: ClassVar[Sequence[str]] = (
        "Edge features are ones, as in the text; the published code has zeros.",
        "A node's edges are summed and the encoder has two layers, as in the text; the code takes means and has one layer more.",
        "The cosine of the learning rate starts again every 32 epochs, as in the published code; the text does not say.",
        "An epoch is divided into steps of equal size, of 128 graphs at most, so that none is left with the few that remain.",
        "Models are tested after every epoch; the code tests after every step, which leaves protocol B more to choose from.",
        "The appendix gives no settings for PTC: they are those of MUTAG, from which the paper's search started.",
        "Folds are scikit-learn's with seed 0, the same for all models; the paper's graphs are in the order of another library.",
        "Every fold starts from the same weights, as with the paper's seed 0; IGNN has CGS's encoder and decoder.",
        "GIN (5 layers with the input, 64 wide, batch norm, dropout 0.5), GraphNorm (the same with it) and DGCNN (its authors' "
        "sizes) are run here with the optimiser, schedule, batches and epochs of CGS, which are not those of their papers.",
    )

    def __init__(self, quick: bool = False, data: Path | None = None):
        """Sets are read into the user's cache, where jobs find them: where they come from is no part of a result."""
        super().__init__(quick, data)
        for name in self.sets:
            if data is not None and not _cached(name) and (data / name / "raw").is_dir():
                classification.load(name, data)

    @property
    def sets(self) -> tuple[str, ...]:
        return ("MUTAG", "PTC") if self.quick else SETS

    @property
    def models(self) -> tuple[str, ...]:
        return ("CGS(4)", "IGNN", "GIN") if self.quick else (*SOLVERS, "IGNN", *pyg_baselines.NAMES)

    @property
    def folds(self) -> int:
        return 2 if self.quick else FOLDS

    def epochs(self, name: str) -> int:
        return 12 if self.quick else EPOCHS[name]

    def missing(self) -> str | None:
        absent = [name for name in self.sets if not _cached(name)]
        if not absent:
            return None
        where = "no folder was named" if self.data is None else f"{self.data} lacks them"
        return f"a folder with the raw TU sets {', '.join(absent)} as NAME/raw/*.txt is needed, and {where}"

    def job(self, model: str, name: str) -> Job:
        """All folds at once: side by side they keep a device busy that each would leave idle."""
        settings = {"seed": 0, "model": model, "set": name, "folds": self.folds, "epochs": self.epochs(name), "chosen": {}}
        if model not in pyg_baselines.NAMES:
            settings["chosen"] = CHOSEN[name]
        return Job(f"{model} on {name}", "classification:learn", settings)

    def jobs(self) -> list[Job]:
        return [self.job(model, name) for name in self.sets for model in self.models]

    # --- tables ---

    def table(self, results: Results) -> dict[str, Any]:
        found = {model: [results[self.job(model, name).key]["result"] for name in self.sets] for model in self.models}
        about = {name: {model: [each[name] for each in row] for model, row in found.items()} for name in ("parameters", "seconds")}
        return {**{protocol: self.under(protocol, found) for protocol in PROTOCOLS}, **about}

    def under(self, protocol: str, found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
        """One of the two tables, and the printed one beside it."""
        judged = {model: [judge(each, protocol) for each in row] for model, row in found.items()}
        places = [printed.SETS.index(name) for name in self.sets]
        return {
            "columns": list(self.sets),
            "rows": {model: [cell for cell, _ in row] for model, row in judged.items()},
            "printed": {model: [row[place] for place in places] for model, row in printed.CLASSIFICATION[protocol].items()},
            "folds": {model: [folds for _, folds in row] for model, row in judged.items()},
        }

    # --- statements ---

    def statements(self, table: dict[str, Any]) -> list[Statement]:
        found = []
        for protocol in PROTOCOLS:
            for place, name in enumerate(self.sets):
                where, part = f"protocol {protocol}, {name}", table[protocol]
                found.append(self.as_printed(part, place, where))
                found += [beside(f"{other}, run here", part["rows"][other][place], part, place, where) for other in ("IGNN", "GIN")]
                if protocol == "A" and name in SOCIAL:
                    found.append(beside("LP-GNN, as printed", part["printed"]["LP-GNN"][place], part, place, where))
        return found

    def as_printed(self, part: dict[str, Any], place: int, where: str) -> Statement:
        own, (mean, _) = best(part["rows"], place)
        other, (wanted, spread) = best(part["printed"], place)
        text = f"{where}: the best CGS is above the paper's best, or within one standard deviation of it"
        evidence = f"{own} {mean:.1f}; in the paper {other} {wanted:.1f} ± {spread:.1f}"
        return Statement(text, None if self.quick else mean >= wanted - spread, evidence)


def beside(name: str, theirs: list[float], part: dict[str, Any], place: int, where: str) -> Statement:
    own, (mean, spread) = best(part["rows"], place)
    evidence = f"{own} {mean:.1f} ± {spread:.1f}; {theirs[0]:.1f} ± {theirs[1]:.1f}"
    return Statement(f"{where}: the best CGS is as good as {name}, or better", mean >= theirs[0], evidence)


def best(rows: dict[str, Any], place: int) -> tuple[str, list[float]]:
    """Of CGS, by the mean."""
    cells = {model: row[place] for model, row in rows.items() if model.startswith("CGS")}
    name = max(cells, key=lambda model: cells[model][0])
    return name, cells[name]


def judge(result: dict[str, Any], protocol: str) -> tuple[list[float], dict[str, list[float]]]:
    """Mean and standard deviation in per cent; every fold's accuracy, and the epoch that it is from, the first being 1."""
    accuracy = 100 * np.array(result["correct"]) / np.array(result["tested"])[:, None]  # [folds, epochs]
    verdict = PROTOCOLS[protocol](accuracy)
    chosen = accuracy[np.arange(len(accuracy)), verdict.epochs].tolist()
    return [verdict.mean, verdict.std], {"accuracy": chosen, "epochs": [epoch + 1 for epoch in verdict.epochs]}


# --- work ---


def learn(settings: dict[str, Any], device: str) -> dict[str, Any]:
    """A model on a set: test graphs that it gets right, by fold and epoch."""
    data = read(settings["set"])
    splits = [Split(*split) for split in classification.folds(data.labels, settings["seed"])[: settings["folds"]]]
    torch.manual_seed(settings["seed"])
    model = build(settings, data, len(splits)).to(device)
    began = time.monotonic()
    recipe = Recipe(settings["epochs"], seed=settings["seed"])
    trace = cross_validate(model, Store(data.graphs, device), splits, recipe)
    return {
        "parameters": count_parameters(model) // len(splits),
        "seconds": time.monotonic() - began,
        "tested": [len(split.test) for split in splits],
        **trace._asdict(),
    }


def build(settings: dict[str, Any], data: Classified, copies: int) -> nn.Module:
    """A copy for every fold."""
    name, features = settings["model"], data.graphs[0].x.shape[1]
    if name in pyg_baselines.NAMES:
        return pyg_baselines.build(name, features, data.classes, copies, [len(graph.x) for graph in data.graphs])
    one = find(name, CLASSIFICATION).build(features, 1, outputs=data.classes, **settings["chosen"])
    if isinstance(one, IGNN):
        return IGNNCopies(one, copies)
    assert isinstance(one, ConvergentGraphSolver)
    return side_by_side(one, copies)


@lru_cache(maxsize=len(SETS))
def read(name: str) -> Classified:
    return classification.load(name, default_cache())


def _cached(name: str) -> bool:
    """Whether PyG has processed a set before."""
    return (default_cache() / name / "processed" / "data.pt").exists() and (default_cache() / name / "raw").is_dir()
