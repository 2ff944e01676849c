"""Graph classification with other settings, and with other folds."""

from __future__ import annotations

from typing import Any, ClassVar

from convergent.experiments import printed
from convergent.experiments.experiment import Results, Statement
from convergent.experiments.job import Job
from convergent.experiments.on_sets import CHOSEN, LEAKY, PROTOCOLS, SWISH, OnSets, accuracy, best


class Tuning(OnSets):
    """The search of the paper, as far as it can be followed: the same numbers are changed, of the same model, on the small sets."""

    name, title = "classification-tuning", "The settings of CGS(4) on the two smallest sets"
    partial = True
    deviations = (
        "The paper changed these settings and says what it chose, not what else it tried; nine are tried here.",
        "Sums over a node's edges, the tenth, are in the paper's text, means in its code.",
    )
    candidates: ClassVar = {
        **{f"{layers} layers, {each['activation']}": {**each, "layers": layers} for each in (LEAKY, SWISH) for layers in (2, 3, 4)},
        "3 layers, leaky_relu, dropout 0.2": {**LEAKY, "dropout": 0.2},
        "3 layers, leaky_relu, dropout 0.5": {**LEAKY, "dropout": 0.5},
        "3 layers, leaky_relu, decoder of one hidden layer": {**LEAKY, "decoder": [64]},
        "3 layers, leaky_relu, sums over edges": {**LEAKY, "aggregation": "sum"},
    }

    @property
    def sets(self) -> tuple[str, ...]:
        return ("MUTAG",) if self.quick else ("MUTAG", "PTC")

    def job(self, label: str, name: str) -> Job:
        return self.learning(f"CGS(4) with {label} on {name}", "CGS(4)", name, self.candidates[label])

    def jobs(self) -> list[Job]:
        return [self.job(label, name) for name in self.sets for label in self.candidates]

    def table(self, results: Results) -> dict[str, Any]:
        def cell(label: str, name: str, protocol: str) -> list[float] | None:
            found = results.get(self.job(label, name).key)
            return None if found is None else accuracy(found["result"]["verdicts"]["often"][protocol])

        columns = [(name, protocol) for name in self.sets for protocol in PROTOCOLS]
        return {
            "columns": [f"{name}, {protocol}" for name, protocol in columns],
            "rows": {label: [cell(label, *column) for column in columns] for label in self.candidates},
            "chosen": {name: label for name in self.sets for label, each in self.candidates.items() if each == CHOSEN[name]},
        }

    def statements(self, table: dict[str, Any]) -> list[Statement]:
        found = []
        for place, column in enumerate(table["columns"]):
            label = table["chosen"][column.partition(",")[0]]
            if table["rows"][label][place] is None:
                continue
            mean, spread = table["rows"][label][place]
            means = {name: row[place][0] for name, row in table["rows"].items() if row[place]}
            other, highest = max(means.items(), key=lambda pair: pair[1])
            text = f"{column}: nothing tried is better than what was chosen by more than its standard deviation over folds"
            evidence = f"{label}: {mean:.1f} ± {spread:.1f}; {other}: {highest:.1f}"
            found.append(Statement(text, None if self.quick else highest <= mean + spread, evidence))
        return found


class Divisions(OnSets):
    """How much of an accuracy is due to which graphs are in a fold together; the paper's folds cannot be had."""

    name, title = "classification-folds", "CGS(8) on MUTAG, divided into folds in five ways"
    partial = True
    deviations = ("It is not in the paper, whose folds are of seed 0, of graphs in the order of another library.",)
    set = "MUTAG"

    @property
    def sets(self) -> tuple[str, ...]:
        return (self.set,)

    @property
    def seeds(self) -> tuple[int, ...]:
        return (0, 1) if self.quick else (0, 1, 2, 3, 4)

    def job(self, seed: int) -> Job:
        return self.learning(f"CGS(8) on {self.set}, folds of seed {seed}", "CGS(8)", self.set, CHOSEN[self.set], seed)

    def jobs(self) -> list[Job]:
        return [self.job(seed) for seed in self.seeds]

    def table(self, results: Results) -> dict[str, Any]:
        done = {seed: results[self.job(seed).key]["result"] for seed in self.seeds if self.job(seed).key in results}
        found = {f"seed {seed}": result["verdicts"]["often"] for seed, result in done.items()}
        return {
            "columns": [f"{self.set}, {protocol}" for protocol in PROTOCOLS],
            "rows": {seed: [accuracy(each[protocol]) for protocol in PROTOCOLS] for seed, each in found.items()},
            "folds": {seed: {protocol: each[protocol]["accuracy"] for protocol in PROTOCOLS} for seed, each in found.items()},
        }

    def statements(self, table: dict[str, Any]) -> list[Statement]:
        """Whether the worst division and the best lie on two sides of what the paper's best asks for."""
        found, place = [], printed.SETS.index(self.set)
        for column, protocol in enumerate(PROTOCOLS):
            model, (wanted, spread) = best(printed.CLASSIFICATION[protocol], place)
            means = [row[column][0] for row in table["rows"].values()]
            evidence = f"{min(means):.1f} to {max(means):.1f}; in the paper {model} {wanted:.1f} ± {spread:.1f}"
            text = f"protocol {protocol}: however {self.set} is divided, CGS(8) is within a standard deviation of the paper's best"
            found.append(Statement(text, None if self.quick else min(means) >= wanted - spread, evidence))
        return found
