"""Whether two folders hold the same results: weights bit for bit, tables byte for byte; times and dates do not count."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ALSO = ("tensorboard",)  # logs with times in them
TIMES = ("seconds", "date", "assembled_at", "commits", "machines", "provenance", "machine", "commit", "versions")
STATES = ("state_dict", "optimizer_states", "lr_schedulers", "global_step")  # of a checkpoint


def differences(folder: Path, wanted: Path) -> list[str]:
    """One line for each file that is missing, left over or different."""
    mine, theirs = (dict(_files(each)) for each in (folder, wanted))
    lines = [f"missing: {name}" for name in sorted(set(theirs) - set(mine))]
    lines += [f"left over: {name}" for name in sorted(set(mine) - set(theirs))]
    for name in sorted(set(mine) & set(theirs)):
        try:
            same = _same(mine[name], theirs[name])
        except Exception as error:
            lines.append(f"unreadable: {name} ({type(error).__name__}: {str(error)[:80]})")
            continue
        lines += [] if same else [f"different: {name}"]
    return lines


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if name.parts[0] not in ALSO and (path.is_file() or not any(path.iterdir())):
            yield str(name), path


def _same(mine: Path, theirs: Path) -> bool:
    if mine.is_dir() or theirs.is_dir():
        return mine.is_dir() == theirs.is_dir()
    if mine.suffix == ".json":
        found = (_timeless(json.loads(path.read_text())) for path in (mine, theirs))
        return json.dumps(next(found), sort_keys=True) == json.dumps(next(found), sort_keys=True)
    if mine.suffix == ".safetensors":
        return _model(mine) == _model(theirs)
    if mine.suffix == ".pt":
        states = [torch.load(path, map_location="cpu", weights_only=True) for path in (mine, theirs)]
        return all(_equal(states[0].get(name), states[1].get(name)) for name in STATES)
    return mine.read_bytes() == theirs.read_bytes()


def _model(path: Path) -> tuple[Any, bytes]:
    """The header of a safetensors file, whose entries come in any order, and the numbers."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def _timeless(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _timeless(value) for name, value in data.items() if name not in TIMES}
    return [_timeless(value) for value in data] if isinstance(data, list) else data


def _equal(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, Tensor):
        return isinstance(theirs, Tensor) and mine.dtype == theirs.dtype and torch.equal(mine, theirs)
    if isinstance(mine, dict):
        return isinstance(theirs, dict) and mine.keys() == theirs.keys() and all(_equal(mine[name], theirs[name]) for name in mine)
    if isinstance(mine, list | tuple):
        return len(mine) == len(theirs) and all(map(_equal, mine, theirs))
    return bool(mine == theirs)
