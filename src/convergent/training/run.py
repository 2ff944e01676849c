"""A training run is a folder:

    config.json         what was asked for
    data.json           fingerprints of the files it learns from, where it reads any
    metrics.csv         a row per logged step;  validation.csv: a row per validation;  tensorboard/: the same, where it is installed
    checkpoint.pt       everything needed to go on: tensors and numbers only, read as such
    model.safetensors   the best model, with its kind and settings in the header: it cannot carry code
    result.json         what came out, with versions, commit, seed, machine and time

Files are whole or not there (``convergent.storage.files``), but for the tables, whose last lines a resumed run writes again.
One process owns the folder (``convergent.storage.lock``).
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from convergent.errors import InputError, first_line
from convergent.nn.arguments import outline
from convergent.nn.model import GraphModel
from convergent.settings import Measure, Natural, arguments, checked, parse_json
from convergent.storage.files import append_bytes, write_atomically
from convergent.storage.files import read_json as read_json
from convergent.storage.files import write_json as write_json
from convergent.training.config import TrainConfig

CONFIG, DATA, METRICS, VALIDATIONS = "config.json", "data.json", "metrics.csv", "validation.csv"
CHECKPOINT, MODEL, RESULT, TENSORBOARD = "checkpoint.pt", "model.safetensors", "result.json", "tensorboard"


# --- what was asked for, and what came out ---


@dataclass(frozen=True)
class Result:
    """What is read of result.json; the rest of it is for people."""

    config: TrainConfig
    steps: Natural
    best_step: int
    seconds: Measure
    validation: dict[str, Measure]
    solves: dict[str, Measure]


def read_config(path: Path) -> TrainConfig:
    data = read_json(path)
    with _named(path):
        return TrainConfig.from_json(data)


def read_result(path: Path) -> dict[str, Any]:
    """All of result.json, once it is sure that what is read of it is there."""
    data = read_json(path)
    with _named(path):
        arguments(Result, data, "result", spare=True)
    return cast(dict[str, Any], data)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors that say which file they are about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


# --- models ---


def save_model(path: Path, model: GraphModel, extra: dict[str, Any] | None = None) -> None:
    """Weights and, in the header, what rebuilds the model."""
    from safetensors.torch import save

    header = {
        "convergent": "1",
        "kind": type(model).__name__,
        "settings": json.dumps(model.settings),
        "extra": json.dumps(extra or {}),
    }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    write_atomically(path, save(tensors, header))


FLOATS = ("F16", "BF16", "F32", "F64")  # as safetensors calls them
MISFIT = "expected a model of convergent, but its header does not fit its weights"


def load_model(path: Path | str) -> tuple[GraphModel, dict[str, Any]]:
    """A model and what was saved beside it. Reading a file runs no code that is in it.

    The model that the header describes is compared with the tensors of the file before anything of its size is made.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise InputError(f"no such file: {path} (expected a model)")
    try:
        with safe_open(str(path), framework="pt") as stream:
            header = stream.metadata() or {}
            if header.get("convergent") != "1":
                raise InputError(f"{path}: expected a model of convergent, but its header names none")
            slices = {name: stream.get_slice(name) for name in stream.keys()}  # noqa: SIM118  (it is no dictionary)
            for name, part in slices.items():
                if part.get_dtype() not in FLOATS:
                    raise InputError(f"{path}: {MISFIT}: {name}: expected floating point numbers, but got {part.get_dtype()}")
            shapes = {name: list(part.get_shape()) for name, part in slices.items()}
            make, extra = _described(path, header, shapes)
            model = make()
            model.load_state_dict({name: stream.get_tensor(name) for name in shapes})
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: expected a safetensors file, but could not read it: {error}") from error
    except InputError:
        raise
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"{path}: {MISFIT}: {first_line(error)}") from error
    for name, tensor in model.state_dict().items():
        if not bool(tensor.isfinite().all()):
            raise InputError(f"{path}: expected finite weights, but {name} holds others")
    return model.eval(), extra


def _described(path: Path, header: dict[str, str], shapes: dict[str, list[int]]) -> tuple[Callable[[], GraphModel], dict[str, Any]]:
    """What makes the model of a header, and what was saved beside it, once it is sure that the weights will fit."""
    try:
        kind, settings, extra = header.get("kind"), _part(header, "settings"), _part(header, "extra")
        make = GraphModel.maker(kind, settings)
    except InputError as error:
        raise InputError(f"{path}: expected a model of convergent, but got another header: {error}") from error
    try:
        numbers = sum(map(math.prod, shapes.values()))
        state = outline(make, 2 * numbers + 16, 2 * len(shapes) + 16)  # twice: buffers that are not saved count as well
    except InputError as error:
        raise InputError(f"{path}: {MISFIT}: {error}") from error
    for name in sorted({*state, *shapes}):
        wanted, found = (list(state[name].shape) if name in state else None), shapes.get(name)
        if wanted != found:
            raise InputError(f"{path}: {MISFIT}: {name}: expected {_shape(wanted)}, but got {_shape(found)}")
    return make, extra


def _part(header: dict[str, str], name: str) -> Any:
    if name not in header:
        raise InputError(f"{name}: expected an entry, but got none")
    try:
        found = parse_json(header[name])
    except InputError as error:
        raise InputError(f"{name}: expected JSON, but could not read it: {error}") from None
    return checked(dict[str, Any], found, name)


def _shape(shape: list[int] | None) -> str:
    return "none" if shape is None else f"shape {shape}"


# --- metrics ---


def append_row(path: Path, row: dict[str, float]) -> None:
    """One more line; the first one writes the names."""
    new = not path.exists()
    text = io.StringIO()
    writer = csv.DictWriter(text, list(row), lineterminator="\n")
    if new:
        writer.writeheader()
    writer.writerow(row)
    append_bytes(path, text.getvalue().encode())


def keep_rows(path: Path, last_step: int) -> None:
    """Forget what was logged after the step that a resumed run starts from, and what a crash has cut off or left empty."""
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = text[: text.rfind("\n") + 1].splitlines()
    if not lines:
        path.unlink()
        return
    kept = [lines[0], *(line for line in lines[1:] if _step(line) <= last_step and line.count(",") == lines[0].count(","))]
    write_atomically(path, ("\n".join(kept) + "\n").encode())


def _step(line: str) -> float:
    first = line.split(",", 1)[0]
    return int(first) if first.isdigit() else float("inf")


def read_rows(path: Path) -> Iterable[dict[str, float]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(stream)]
