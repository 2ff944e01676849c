"""What all experiments share: jobs in, a table out, statements that are true or false."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from convergent.experiments.job import Job
from convergent.training.provenance import provenance

Results = Mapping[str, dict[str, Any]]  # of jobs, by their keys


@dataclass(frozen=True)
class Statement:
    """A conclusion of the paper, or one that this project has to bear out, put to the test."""

    text: str
    holds: bool | None  # None: it cannot be told from what was run
    evidence: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "holds": self.holds, "evidence": self.evidence}


class Experiment(ABC):
    """A table or figure of the paper. An instance has a budget: that of the paper or, ``quick``, one for two cores and a minute."""

    kinds: ClassVar[dict[str, type[Experiment]]] = {}

    name: ClassVar[str]  # on the command line, and of the file of results
    title: ClassVar[str]
    deviations: ClassVar[Sequence[str]] = ()  # sentences: in what its settings are not those of the paper, and why
    partial: ClassVar[bool] = False  # whether a table can be made of some of the results

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "name"):
            Experiment.kinds[cls.name] = cls

    def __init__(self, quick: bool = False, data: Path | None = None):
        """``data``: a folder with the raw TU sets, for the experiments that read them."""
        self.quick, self.data = quick, data

    @abstractmethod
    def jobs(self) -> list[Job]:
        """All work there is to do; jobs do not depend on each other."""

    @abstractmethod
    def table(self, results: Results) -> dict[str, Any]:
        """The results in the shape and with the names of the paper's tables, and whatever a figure needs."""

    def statements(self, table: dict[str, Any]) -> list[Statement]:
        return []

    def missing(self) -> str | None:
        """Why this experiment cannot be run here; None: it can."""
        return None

    def report(self, results: Results) -> dict[str, Any]:
        """What is written to NAME.json."""
        table = self.table(results)
        present = [job for job in self.jobs() if job.key in results]
        seeds = sorted({job.settings["seed"] for job in present if "seed" in job.settings})
        origins = [results[job.key]["provenance"] for job in present]
        return {
            "experiment": self.name,
            "title": self.title,
            "quick": self.quick,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "assembled_at": provenance()["commit"],
            "commits": sorted({str(origin["commit"]) for origin in origins}),
            "machines": _distinct([{**origin["machine"], "device": origin["device"]} for origin in origins]),
            "seeds": seeds,
            "jobs": {job.key: job.title for job in present},
            "missing": [job.title for job in self.jobs() if job.key not in results],
            "deviations": list(self.deviations),
            "table": table,
            "statements": [statement.to_json() for statement in self.statements(table)],
        }


def _distinct(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for number, item in enumerate(items) if item not in items[:number]]
