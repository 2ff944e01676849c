"""What is killed: a training, predictions in both forms, and jobs of ``reproduce``; each with how it goes on after a kill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STEPS = 12
TRAINING = ("--steps", STEPS, "--graphs", 2, "--validate-every", 4, "--validation-graphs", 2, "--checkpoint-every", 3)
NETWORKS = 6
ROWS = 40  # of a block of predictions, so that there are several

# One of these runs before the command, in its process.
BLOCKS = f"""
import functools
from convergent.training import predict as predicting
predicting.predict = functools.partial(predicting.predict, rows={ROWS})
"""
EXPERIMENT = """
from convergent.experiments.experiment import Experiment
from convergent.experiments.job import Job
from convergent.experiments.learning import training_job
from convergent.training.config import TrainConfig

class Small(Experiment):
    name, title = "small", "Small jobs"

    def jobs(self):
        small = {"steps": 6, "graphs": 2, "validate_every": 3, "validation_graphs": 2, "checkpoint_every": 2}
        sizes = {"pores": (20, 24)}
        config = TrainConfig(task="pore-networks", model="CGS(8)", task_settings=sizes, **small)
        one = {"columns": [[6, 2]], "graphs": 2}
        floors = [Job(f"floor {seed}", "value_iteration:floor", {"seed": seed, **one}) for seed in (0, 1)]
        return [training_job("training", config, {"same": {}}, 2), *floors]

    def table(self, results):
        return {job.title: results[job.key]["result"] for job in self.jobs()}
"""
CALL = """
import sys
from convergent.cli import main
sys.argv = ["convergent", *{arguments!r}]
main()
"""


@dataclass(frozen=True)
class Work:
    """A command that writes into ``out``."""

    name: str
    first: tuple[str, ...]  # OUT stands for the folder
    again: tuple[str, ...]
    begun: str  # a file in OUT by which it is known that there is something to go on with
    before: str = ""
    same_as: str | None = None  # the work that leaves the same behind

    def source(self, out: Path, resumes: bool, prelude: str = "") -> str:
        """The command as Python, for a fork."""
        resumes = resumes and (out / self.begun).exists()
        arguments = [str(out) if each == "OUT" else each for each in (self.again if resumes else self.first)]
        return prelude + self.before + CALL.format(arguments=arguments)


def data_command(networks: Path) -> Sequence[object]:
    return ["data", "pore-networks", "--graphs", NETWORKS, "--set", "pores=20,24", "--out", networks]


def works(networks: Path, model: Path) -> list[Work]:
    """``model`` is the uninterrupted training; the predictions are its."""
    learning = (*TRAINING, "--model", "CGS(8)", "--data", networks, "--target", "pressure")
    made = [Work("train", texts("train", "folder", *learning, "--out", "OUT"), ("train", "--resume", "OUT"), "config.json")]
    for form in ("csv", "parquet"):
        command = texts("predict", model, networks, "--out", "OUT", "--format", form, "--resume")
        made.append(Work(f"predict {form}", command, command, ".", BLOCKS))
    for workers, same_as in ((1, None), (2, "reproduce")):
        command = texts("reproduce", "small", "--out", "OUT", "--workers", workers)
        name = "reproduce" if workers == 1 else f"reproduce with {workers} workers"
        made.append(Work(name, command, command, ".", EXPERIMENT, same_as))
    return made


def texts(*parts: object) -> tuple[str, ...]:
    return tuple(map(str, parts))
