"""What a training run is asked for."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from convergent.settings import Count, Name, OneOf, Positive, Seed, build, check_fields

SCHEDULES = ("restarts", "one-cycle", "constant")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of a run; config.json is this.

    Attributes:
        task: "value-iteration", "pore-networks", "classification" or "folder" (the user's own networks).
        model: its name in the paper, such as "CGS(8)".
        seed: of the weights and of all data.
        steps: gradient steps.
        graphs: in every step.
        renew: steps after which new graphs are made; None: as the task has it (32 where they are generated, 1 where they are read).
        rate: of Adam.
        schedule: "restarts" (a cosine that starts again every 32 steps, as in the paper's code), "one-cycle" or "constant".
        clip: the largest norm of a gradient; None: any.
        validate_every, validation_graphs: how often, and on how many graphs that are never trained on.
        patience: validations without a better one after which training stops; None: never.
        checkpoint_every: steps between two points from which a run can be resumed.
        capture: replay steps as CUDA graphs where possible; on a CPU it changes nothing.
        task_settings, model_settings: changes to the task's and the model's own.
    """

    task: Name
    model: Name
    seed: Seed = 0
    steps: Count = 1000
    graphs: Count = 32
    renew: Count | None = None
    rate: Positive = 1e-3
    schedule: Annotated[str, OneOf(SCHEDULES)] = "restarts"
    clip: Positive | None = None
    validate_every: Count = 100
    validation_graphs: Count = 64
    patience: Count | None = None
    checkpoint_every: Count = 100
    capture: bool = True
    task_settings: dict[str, Any] = field(default_factory=dict)
    model_settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Any) -> TrainConfig:
        return build(TrainConfig, data, "config")
