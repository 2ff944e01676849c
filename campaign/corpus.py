"""Random bad inputs of the command: options, tables, settings on disk, models and checkpoints, each certainly wrong."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from campaign.shapes import pick

TARGET = "pressure"
SMALL = ("--model", "CGS(8)", "--steps", 6, "--graphs", 2, "--validate-every", 3, "--validation-graphs", 2, "--checkpoint-every", 2)


@dataclass(frozen=True)
class Prepared:
    """What is right: networks, a run that has ended, and one that goes on."""

    networks: Path
    run: Path
    unfinished: Path


@dataclass(frozen=True)
class Bad:
    kind: str
    what: str
    command: list[Any]


def prepare(forks: Any, place: Path) -> Prepared:
    made = Prepared(place / "networks", place / "run", place / "unfinished")
    train = ["train", "folder", "--data", made.networks, "--target", TARGET, *SMALL]
    for command in (
        ["data", "pore-networks", "--graphs", 3, "--set", "pores=20,24", "--out", made.networks],
        [*train, "--out", made.run],
    ):
        ended = forks.run(command, watch=place)
        assert ended.code == 0, ended.complained
    shutil.copytree(made.run, made.unfinished)
    (made.unfinished / "result.json").unlink()
    return made


def random_input(seed: int, number: int, prepared: Prepared, folder: Path) -> Bad:
    """Damaged copies go to ``folder``; so does what the command would write."""
    draw = np.random.default_rng([seed, number, 2])
    make = pick(draw, (_option, _setting, _table, _config, _model, _checkpoint, _place), (4, 4, 5, 4, 4, 2, 1))
    return make(draw, prepared, folder)


# --- the command line ---

NUMBERS = ("-1", "0", "x", "", "nan", "inf", "1e400", "1,5", "[1]", "null", "1.5", "--", "a[/b]")
COUNTS = ("--steps", "--graphs", "--renew", "--validate-every", "--validation-graphs", "--patience", "--checkpoint-every")
WORDS = {
    "--seed": ("-1", "99999999999999999999", "x", "1.5", ""),
    "--rate": ("0", "-1", "nan", "inf", "x", "", "1,5"),
    "--clip": ("0", "-1", "nan", "x", ""),
    "--schedule": ("x", "", "Restarts", "[/]", "1"),
    "--model": ("", "x", "CGS", "CGS(0)", "CGS(-1)", "cgs(8", "a[/b]", "GIN(9)"),
    "--device": ("x", "", "tpu", "cuda:99", "[/]", "meta"),
    "--devices": ("0", "-1", "x", "1.5"),
    "--nodes": ("0", "-1", "x", "1.5"),
}


def _option(draw: Generator, prepared: Prepared, folder: Path) -> Bad:
    options = {**dict.fromkeys(COUNTS, NUMBERS), **WORDS}
    name = pick(draw, tuple(options))
    value = pick(draw, options[name])
    task = pick(draw, ("pore-networks", "value-iteration"))
    given = {"--steps": "2", "--graphs": "1", "--out": str(folder / "run"), name: value}
    return Bad("option", f"{name} {value!r}", ["train", task, *(part for pair in given.items() for part in pair)])


SETTINGS = {
    "pore-networks": {
        "pores": (
            "x",
            "1,2,3",
            "5,4",
            "-5,7",
            "0",
            "10000000000,10000000000",
            "nan",
            "null",
            "true",
            "{}",
            "1.5,2.5",
            "",
            "[[1,2]]",
        ),
        "generator": ("x", "", "1", "[]", "null"),
        "wide": ("x", "2", "[]", "", "1.5"),
        "unknown": ("1",),
    },
    "value-iteration": {
        "states": ("x", "1,2,3", "5,4", "-5,7", "nan", "10000000000,10000000000", "{}", ""),
        "actions": ("x", "0,0", "5,4", "-1,2", "1.5", "true"),
        "pool": ("1.5", "-1", "x", "0", "[]", "true", "99999999999999999999"),
    },
}
MODEL_SETTINGS = {
    "solver": ("x", "5", "[]", "{}"),
    "dropout": ("2", "-1", "x"),
    "heads": ("99999999999", "0", "-1", "1.5", "x", "[]"),
    "readout": ("x", "5"),
    "flow": ("x", "5", "null"),
    "node_features": ("3", "0", "-1", "x"),
    "gamma": ("0", "1", "2", "x", "nan"),
    "layers": ("-1", "x", "1000000", "1.5"),
    "unknown": ("1",),
}


def _setting(draw: Generator, prepared: Prepared, folder: Path) -> Bad:
    task = pick(draw, tuple(SETTINGS))
    option, table = ("--set", SETTINGS[task]) if draw.random() < 0.6 else ("--model-set", MODEL_SETTINGS)
    name = pick(draw, tuple(table))
    pair = f"{name}={pick(draw, table[name])}"
    command = ["train", task, "--steps", 2, "--graphs", 1, "--model", "CGS(16)" if task == "value-iteration" else "CGS(8)"]
    return Bad("setting", f"{option} {pair}", [*command, option, pair, "--out", folder / "run"])


def _place(draw: Generator, prepared: Prepared, folder: Path) -> Bad:
    """Folders and names that are not what they have to be."""
    odd = pick(draw, ("", "missing", "a[/b]", "file", "folder"))
    (folder / "file").write_text("text")
    (folder / "folder").mkdir()
    path = "" if odd == "" else folder / odd
    out = folder / "out"
    commands: dict[str, list[Any]] = {
        "networks": ["predict", prepared.run, path, "--out", out],
        "model": ["predict", path, prepared.networks, "--out", out],
        "resume": ["train", "--resume", path],
        "data": ["train", "folder", "--data", path, "--target", TARGET, *SMALL, "--out", out],
        "twice": ["train", "folder", "--data", prepared.networks, "--target", TARGET, "--target", TARGET, *SMALL, "--out", out],
        "an id": ["train", "folder", "--data", prepared.networks, "--target", "node", *SMALL, "--out", out],
        "format": ["predict", prepared.run, prepared.networks, "--out", out, "--format", str(odd) or "x"],
    }
    name = pick(draw, tuple(commands))
    return Bad("place", f"{name} {odd!r}", commands[name])


# --- files ---


def _table(draw: Generator, prepared: Prepared, folder: Path) -> Bad:
    networks = folder / "networks"
    shutil.copytree(prepared.networks, networks)
    file = networks / pick(draw, ("nodes.csv", "edges.csv"))
    trains = bool(draw.random() < 0.5)
    right = RIGHT_EDGES if file.name == "edges.csv" else ()
    damage = pick(draw, tuple(name for name in TABLES if name not in right and (name not in RIGHT_TO_LEARN or not trains)))
    file.write_bytes(TABLES[damage](draw, file.read_bytes()))
    train = ["train", "folder", "--data", networks, "--target", TARGET, *SMALL, "--out", folder / "out"]
    predict = ["predict", prepared.run, networks, "--out", folder / "out"]
    return Bad("table", f"{file.name}: {damage}", train if trains else predict)


def _cell(text: str) -> Callable[[Generator, bytes], bytes]:
    """Puts ``text`` in a cell of features; the first three columns may be names."""

    def change(draw: Generator, content: bytes) -> bytes:
        lines = content.decode().splitlines()
        row = int(draw.integers(1, len(lines)))
        cells = lines[row].split(",")
        cells[3 + int(draw.integers(2))] = text
        return "\n".join([*lines[:row], ",".join(cells), *lines[row + 1 :], ""]).encode()

    return change


def _row(change: Callable[[str], str]) -> Callable[[Generator, bytes], bytes]:
    def changed(draw: Generator, content: bytes) -> bytes:
        lines = content.decode().splitlines()
        row = int(draw.integers(1, len(lines)))
        return "\n".join([*lines[:row], change(lines[row]), *lines[row + 1 :], ""]).encode()

    return changed


def _columns(change: Callable[[list[str]], list[str]]) -> Callable[[Generator, bytes], bytes]:
    return lambda draw, content: "\n".join(
        [*(",".join(change(line.split(","))) for line in content.decode().splitlines()), ""]
    ).encode()


TABLES: dict[str, Callable[[Generator, bytes], bytes]] = {
    "a word for a number": _cell("word"),
    "an empty cell": _cell(""),
    "nan": _cell("nan"),
    "inf": _cell("inf"),
    "1e39": _cell("1e39"),
    "a comma in a number": _cell('"1,5"'),
    "a list": _cell('"[1, 2]"'),
    "NUL": _cell("\0"),
    "a surplus cell": _row(lambda line: line + ",1"),
    "a missing cell": _row(lambda line: line.rpartition(",")[0]),
    "an unknown graph": _row(lambda line: "nowhere," + line.partition(",")[2]),
    "a broken quote": _row(lambda line: '"' + line),
    "no first column": _columns(lambda cells: cells[1:]),
    "no second column": _columns(lambda cells: [cells[0], *cells[2:]]),
    "no last column": _columns(lambda cells: cells[:-2]),
    "twin columns": _columns(lambda cells: [*cells, cells[-1]]),
    "empty": lambda draw, content: b"",
    "only a header": lambda draw, content: content.splitlines()[0] + b"\n",
    "no header": lambda draw, content: b"\n".join(content.splitlines()[1:]),
    "bytes": lambda draw, content: draw.bytes(200),
    "utf-16": lambda draw, content: content.decode().encode("utf-16"),
    "half a character": lambda draw, content: content[:200] + b"\xff\xfe" + content[200:],
}

RIGHT_EDGES = ("only a header", "no last column")  # networks without edges, and with fewer features
RIGHT_TO_LEARN = ("a word for a number",)  # a column of categories

VALUES: tuple[Any, ...] = (None, True, -1, 0, 1.5, float("nan"), 10**30, "", "x", "[/]", [], [1, 2, 3], {}, {"a": 1}, [[]])


def _paths(data: Any, start: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [*([start] if start else []), *(path for key, each in inner for path in _paths(each, (*start, key)))]


def _mistyped(draw: Generator, data: Any) -> tuple[Any, str]:
    """One place in it with a value of another type."""
    path = pick(draw, tuple(_paths(data)))
    copy = json.loads(json.dumps(data))
    place = copy
    for key in path[:-1]:
        place = place[key]
    kind = {dict: "object", list: "list", str: "text", bool: "bool", int: "number", float: "number", type(None): "null"}
    others = [value for value in VALUES if kind[type(value)] != kind[type(place[path[-1]])] and value is not None]
    value = place[path[-1]] = pick(draw, tuple(others))
    return copy, f"{'.'.join(map(str, path))} = {value!r}"


def _config(draw: Generator, prepared: Prepared, folder: Path) -> Bad:
    """Settings of a run, mistyped or cut off."""
    copy = folder / "run"
    shutil.copytree(prepared.unfinished, copy)
    config = json.loads((copy / "config.json").read_text())
    config = {name: value for name, value in config.items() if value is not None}
    if draw.random() < 0.3:
        text = json.dumps(config)
        what = pick(draw, ("half", "empty", "a list", "a number", "bytes"))
        cut = {"half": text[: len(text) // 2], "empty": "", "a list": "[1]", "a number": "5", "bytes": "\0\1\2"}[what]
        (copy / "config.json").write_text(cut)
    else:
        changed, what = _mistyped(draw, config)
        (copy / "config.json").write_text(json.dumps(changed))
    return Bad("config", what, ["train", "--resume", copy])


def _model(draw: Generator, prepared: Prepared, folder: Path) -> Bad:
    """A model's file: its header mistyped, or its bytes cut."""
    file = folder / "model.safetensors"
    content = (prepared.run / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    if draw.random() < 0.3:
        what = pick(draw, ("half", "empty", "bytes", "no length"))
        damaged = {"half": content[: len(content) // 2], "empty": b"", "bytes": draw.bytes(500), "no length": content[8:]}[what]
    else:
        about = header["__metadata__"]
        part = pick(draw, ("settings", "extra", "kind"))
        if part == "kind":
            about["kind"], what = pick(draw, ("", "x", "object", "Module", "[/]")), "kind"
        else:
            told = json.loads(about[part])
            told = told if part == "settings" else {name: told[name] for name in ("schema", "config")}
            changed, what = _mistyped(draw, told)
            about[part] = json.dumps(changed)
        text = json.dumps(header).encode()
        damaged, what = struct.pack("<Q", len(text)) + text + content[8 + length :], f"{part}: {what}"
    file.write_bytes(damaged)
    return Bad("model", what, ["predict", file, prepared.networks, "--out", folder / "out"])


def _checkpoint(draw: Generator, prepared: Prepared, folder: Path) -> Bad:
    copy = folder / "run"
    shutil.copytree(prepared.unfinished, copy)
    (file,) = [path for path in copy.iterdir() if path.name.startswith("checkpoint")]
    content = file.read_bytes()
    what = pick(draw, ("half", "empty", "bytes", "a pickle", "cut at random", "text"))
    at = int(draw.integers(1, len(content) - 1))
    damaged = {"half": content[: len(content) // 2], "empty": b"", "bytes": draw.bytes(500), "text": b"text"}
    damaged |= {"a pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR.", "cut at random": content[:at]}
    file.write_bytes(damaged[what])
    return Bad("checkpoint", what, ["train", "--resume", copy])
