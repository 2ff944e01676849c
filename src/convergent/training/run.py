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
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from convergent.errors import InputError
from convergent.nn.model import GraphModel
from convergent.storage.files import append_bytes, write_atomically
from convergent.storage.files import read_json as read_json
from convergent.storage.files import write_json as write_json

CONFIG, DATA, METRICS, VALIDATIONS = "config.json", "data.json", "metrics.csv", "validation.csv"
CHECKPOINT, MODEL, RESULT, TENSORBOARD = "checkpoint.pt", "model.safetensors", "result.json", "tensorboard"


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


def load_model(path: Path | str) -> tuple[GraphModel, dict[str, Any]]:
    """A model and what was saved beside it. Reading a file runs no code that is in it."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: expected a model file, but there is none")
    try:
        with safe_open(str(path), framework="pt") as stream:
            header = stream.metadata() or {}
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118  (it is no dictionary)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: expected a safetensors file, but could not read it: {error}") from error
    if header.get("convergent") != "1":
        raise InputError(f"{path}: expected a model of convergent, but its header names none")
    try:
        settings, extra = json.loads(header["settings"]), json.loads(header["extra"])
        model = GraphModel.rebuild(header["kind"], settings)
        model.load_state_dict(tensors)
    except InputError as error:
        raise InputError(f"{path}: expected a model of convergent, but {error}") from error
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: expected a model of convergent, but its header does not fit its weights: {reason}") from error
    return model.eval(), extra


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
