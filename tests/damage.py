"""Damaged files: what a disk, a spreadsheet, another program or somebody with bad intent may make of good ones."""

from __future__ import annotations

import json
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save

Damage = Callable[[Path], None]  # of a file, or of a folder of tables


def together(*damages: Damage) -> Damage:
    def apply(path: Path) -> None:
        for damage in damages:
            damage(path)

    return apply


# --- any file ---


def gone(path: Path) -> None:
    path.unlink()


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def content(text: str | bytes) -> Damage:
    return lambda path: void(path.write_bytes(text.encode() if isinstance(text, str) else text))


def cut(share: float) -> Damage:
    return lambda path: void(path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)]))


def flipped(seed: int, bits: int = 1) -> Damage:
    """Some bits turned over."""

    def apply(path: Path) -> None:
        found, rng = bytearray(path.read_bytes()), random.Random(seed)
        for _ in range(bits):
            found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(found))

    return apply


def garbage(seed: int, size: int = 300) -> Damage:
    return content(random.Random(seed).randbytes(size))


def void(_: Any) -> None:
    """Damage returns nothing."""


# --- JSON ---


def entry(name: str, value: Any) -> Damage:
    """Another value; a dotted name goes deeper."""

    def apply(path: Path) -> None:
        data = json.loads(path.read_text())
        _set(data, name, value)
        path.write_text(json.dumps(data))

    return apply


def _set(data: Any, name: str, value: Any) -> None:
    *outer, last = name.split(".")
    for each in outer:
        data = data[each]
    data[last] = value


def _remove(data: Any, name: str) -> None:
    *outer, last = name.split(".")
    for each in outer:
        data = data[each]
    del data[last]


def without(name: str) -> Damage:
    def apply(path: Path) -> None:
        data = json.loads(path.read_text())
        _remove(data, name)
        path.write_text(json.dumps(data))

    return apply


# --- models ---


def header(change: Callable[[dict[str, Any]], None]) -> Damage:
    """Another header; its entries settings and extra are given as data."""

    def apply(path: Path) -> None:
        with safe_open(str(path), framework="pt") as stream:
            found: dict[str, Any] = dict(stream.metadata())
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
        for name in ("settings", "extra"):
            found[name] = json.loads(found[name])
        change(found)
        texts = {name: each if isinstance(each, str) else json.dumps(each) for name, each in found.items()}
        path.write_bytes(save(tensors, {name: text.encode("ascii", "backslashreplace").decode() for name, text in texts.items()}))

    return apply


def heading(name: str, value: Any) -> Damage:
    return header(lambda found: _set(found, name, value))


def weights(change: Callable[[dict[str, torch.Tensor]], None]) -> Damage:
    def apply(path: Path) -> None:
        with safe_open(str(path), framework="pt") as stream:
            found = dict(stream.metadata())
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
        change(tensors)
        path.write_bytes(save(tensors, found))

    return apply


# --- checkpoints ---


class Code:
    """What a pickle can hold: a call, here of something that would leave a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("open('code-was-run', 'w').close()",))


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps(Code()))


def saved(value: Any) -> Damage:
    return lambda path: torch.save(value, path)


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "nothing of interest")


def kept(name: str, value: Any) -> Damage:
    """Another entry in a checkpoint; without a value none."""

    def apply(path: Path) -> None:
        found = torch.load(path, weights_only=True)
        if value is None:
            _remove(found, name)
        else:
            _set(found, name, value)
        torch.save(found, path)

    return apply


def other_shapes(path: Path) -> None:
    found = torch.load(path, weights_only=True)
    found["state_dict"] = {name: torch.zeros(3, 3) for name in found["state_dict"]}
    torch.save(found, path)


# --- tables ---


def cell(row: int, column: str, value: str, table: str = "nodes") -> Damage:
    """One cell of a table, the header being row 1."""

    def apply(folder: Path) -> None:
        file = folder / f"{table}.csv"
        lines = file.read_text().splitlines()
        cells, place = lines[row - 1].split(","), lines[0].split(",").index(column)
        cells[place] = value
        lines[row - 1] = ",".join(cells)
        file.write_text("\n".join(lines) + "\n")

    return apply


def column(name: str, value: str, table: str = "nodes") -> Damage:
    """The same value in every row."""

    def apply(folder: Path) -> None:
        rows = len((folder / f"{table}.csv").read_text().splitlines())
        for row in range(2, rows + 1):
            cell(row, name, value, table)(folder)

    return apply


def lines(change: Callable[[list[str]], list[str]], table: str = "nodes") -> Damage:
    def apply(folder: Path) -> None:
        file = folder / f"{table}.csv"
        file.write_text("\n".join(change(file.read_text().splitlines())) + "\n")

    return apply


def table(damage: Damage, name: str = "nodes.csv") -> Damage:
    return lambda folder: damage(folder / name)


def parquet(change: Callable[[Any], Any]) -> Damage:
    """Nodes as Parquet, from an Arrow table that is changed first."""

    def apply(folder: Path) -> None:
        import pyarrow.csv
        import pyarrow.parquet

        pyarrow.parquet.write_table(change(pyarrow.csv.read_csv(folder / "nodes.csv")), folder / "nodes.parquet")
        (folder / "nodes.csv").unlink()

    return apply
