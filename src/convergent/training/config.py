"""What a training run is asked for."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from convergent.errors import InputError, expect

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

    task: str
    model: str
    seed: int = 0
    steps: int = 1000
    graphs: int = 32
    renew: int | None = None
    rate: float = 1e-3
    schedule: str = "restarts"
    clip: float | None = None
    validate_every: int = 100
    validation_graphs: int = 64
    patience: int | None = None
    checkpoint_every: int = 100
    capture: bool = True
    task_settings: dict[str, Any] = field(default_factory=dict)
    model_settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("steps", "graphs", "renew", "validate_every", "validation_graphs", "patience", "checkpoint_every"):
            value, may_miss = getattr(self, name), name in ("renew", "patience")
            fits = (value is None and may_miss) or (isinstance(value, int) and not isinstance(value, bool) and value >= 1)
            expect(fits, name, f"{'None or ' if may_miss else ''}a whole number, 1 or more", repr(value))
        expect(self.schedule in SCHEDULES, "schedule", f"one of {SCHEDULES}", repr(self.schedule))
        expect(self.rate > 0, "rate", "a positive number", self.rate)
        expect(isinstance(self.capture, bool), "capture", "True or False", repr(self.capture))
        expect(self.clip is None or self.clip > 0, "clip", "None or a positive number", self.clip)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Any) -> TrainConfig:
        known = {entry.name for entry in fields(TrainConfig)}
        if not isinstance(data, dict) or not {"task", "model"} <= set(data) <= known:
            raise InputError("config: expected the settings of a training run, but got something else")
        return TrainConfig(**data)
