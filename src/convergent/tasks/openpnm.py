"""Pore networks to and from OpenPNM (the extra ``pore``), in memory and as CSV files that it reads and writes.

A network of OpenPNM is a dictionary of arrays: properties ("throat.length") and labels ("pore.xmin") of pores and throats. What is
read is five properties and two labels, which say where the inlet and the outlet are; volumes and conductances follow from
them as in ``pore_network``, whatever else the network holds.

Files are CSV, which keeps everything and cannot run code, as OpenPNM's own format (a pickle) can. They are read and written
without OpenPNM: its writer drops the pores beyond the number of throats, and its reader has no words for a broken file.
"""

from __future__ import annotations

import csv
import io
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from textwrap import shorten
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from convergent.errors import InputError, expect
from convergent.storage.files import write_atomically
from convergent.tasks.batch import GraphBatch
from convergent.tasks.pore_network import Floats, PoreNetwork, as_batch

# what is read, and how many numbers each pore or throat has of it
PROPERTIES = {"pore.coords": 3, "pore.diameter": 1, "throat.conns": 2, "throat.diameter": 1, "throat.length": 1}
COUNTED = {"pore": "pore.coords[0]", "throat": "throat.conns[0]"}  # the columns of a file that say how many there are


@contextmanager
def undisturbed() -> Iterator[None]:
    """Put back what importing OpenPNM changes for everybody: numpy's error state, the root logger, the filters of warnings."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    with np.errstate(), warnings.catch_warnings():
        try:
            yield
        finally:
            root.setLevel(level)
            root.handlers[:] = handlers


# --- in memory ---


def to_openpnm(network: PoreNetwork) -> Any:
    """An ``openpnm.network.Network`` with sizes and volumes, and the labels "pore.inlet" and "pore.outlet".

    OpenPNM keeps it in its workspace until ``openpnm.Workspace().clear()``.
    """
    with undisturbed():
        from openpnm.network import Network

        arrays = _arrays(network)
        made = Network(coords=arrays.pop("pore.coords"), conns=arrays.pop("throat.conns"))
        for name, values in arrays.items():
            made[name] = values
    return made


def from_openpnm(network: Mapping[str, Any], inlet: str = "inlet", outlet: str = "outlet") -> GraphBatch:
    """A network of OpenPNM as a graph, with the features of ``pore_network`` and its exact pressure.

    Args:
        network: an ``openpnm.network.Network``.
        inlet: the label of the pores with pressure 1; in networks that OpenPNM generates the faces are "xmin" to "zmax".
        outlet: the label of the pores with pressure 0.

    Raises:
        InputError: names the property or label that is missing or wrong.
    """
    return as_batch(as_pore_network(network, inlet, outlet))


def as_pore_network(
    network: Mapping[str, Any], inlet: str = "inlet", outlet: str = "outlet", where: str = "network"
) -> PoreNetwork:
    """The same in double precision, before it is a graph; errors begin with ``where``."""
    expect(isinstance(network, Mapping), where, "a network of OpenPNM", type(network).__name__)
    position = _numbers(network, "pore.coords", None, where)
    diameter = _numbers(network, "pore.diameter", len(position), where)
    throats = _throats(_numbers(network, "throat.conns", None, where), len(position), where)
    width = _numbers(network, "throat.diameter", len(throats), where)
    length = _numbers(network, "throat.length", len(throats), where)
    _refuse(diameter < 0, diameter, "pore.diameter", "no number below 0", where)
    _refuse(width <= 0, width, "throat.diameter", "numbers above 0", where)
    _refuse(length <= 0, length, "throat.length", "numbers above 0", where)
    first, last = (_label(network, name, len(position), where) for name in (inlet, outlet))
    both = first & last
    expect(not both.any(), where, f"no pore with both labels, {inlet!r} and {outlet!r}", f"pore {both.argmax()}")
    made = PoreNetwork(position, diameter, throats, width, length, first, last)
    with np.errstate(over="ignore", divide="ignore"):
        flows = np.isfinite(made.conductance) & (made.conductance > 0)
    _refuse(~flows, width, "throat.diameter", "metres that give a conductance a double can hold", where)
    return made


def _arrays(network: PoreNetwork) -> dict[str, NDArray[Any]]:
    """What OpenPNM knows of a network, by its names."""
    return {
        "throat.conns": network.throats,
        "throat.diameter": network.throat_diameter,
        "throat.length": network.throat_length,
        "throat.volume": network.edge_features()[:, 0],
        "pore.coords": network.position,
        "pore.diameter": network.diameter,
        "pore.volume": network.node_features()[:, 3],
        "pore.inlet": network.inlet,
        "pore.outlet": network.outlet,
    }


def _numbers(network: Mapping[str, Any], name: str, count: int | None, where: str) -> Floats:
    """A property, [count] or [count, width]."""
    expect(name in network, where, f"a property {name!r}", _listed(network))
    values, width = np.asarray(network[name]), PROPERTIES[name]
    rows = len(values) if count is None and values.ndim else count
    shape = (rows,) if width == 1 else (rows, width)
    expect(values.shape == shape, where, f"{name!r} of shape {shape}", values.shape)
    expect(values.dtype.kind in "iuf", where, f"numbers in {name!r}", values.dtype)
    values = values.astype(np.float64)
    _refuse(~np.isfinite(values), values, name, "finite numbers", where)
    return values


def _label(network: Mapping[str, Any], label: str, count: int, where: str) -> NDArray[np.bool_]:
    """Which pores have it, [count]; a label that no pore has would leave the pressure without a boundary."""
    name = _pore(label)
    expect(name in network, where, f"a label {name!r}", _listed(network))
    found = np.asarray(network[name])
    came = f"{found.dtype} of shape {found.shape}"
    expect(found.dtype == bool and found.shape == (count,), where, f"{name!r} to be {count} booleans", came)
    expect(bool(found.any()), where, f"one pore or more with the label {name!r}", "none")
    return found.copy()


def _throats(ends: Floats, pores: int, where: str) -> NDArray[np.int64]:
    """[T, 2] the smaller first. Two throats may join the same pores: their conductances add."""
    _refuse((ends != np.round(ends)) | (ends < 0) | (ends >= pores), ends, "throat.conns", f"pores 0 to {pores - 1}", where)
    _refuse(ends[:, 0] == ends[:, 1], ends[:, 0], "throat.conns", "two different pores", where)
    return np.sort(ends.astype(np.int64), axis=1)


def _refuse(bad: NDArray[np.bool_], values: Floats, name: str, expected: str, where: str) -> None:
    """Name the first of the bad values."""
    if bad.any():
        place = tuple(int(index) for index in np.argwhere(bad)[0])
        came = f"{values[place]:g} at {_element(name)} {place[0]}"
        raise InputError(f"{where}: expected {expected} in {name!r}, but got {came}")


def _element(name: str) -> str:
    """Pore or throat."""
    return name.partition(".")[0]


def _pore(label: str) -> str:
    """OpenPNM names a label with and without its element: "xmin" and "pore.xmin"."""
    return f"pore.{label.removeprefix('pore.')}"


def _listed(names: Iterable[str]) -> str:
    """In one line, however many and whatever they are."""
    shown = (name if name.isprintable() else repr(name) for name in sorted(map(str, names)))
    return shorten(", ".join(shown), 300, placeholder=" ...") or "none"


# --- on disk ---


def write_network(network: PoreNetwork, path: Path | str) -> None:
    """Write the CSV file that ``openpnm.io.network_from_csv`` reads: pores and throats side by side, the shorter padded."""
    path = Path(path)
    expect(path.suffix == ".csv", "path", "a name that ends in .csv, as OpenPNM opens no other", path)
    columns: dict[str, list[Any]] = {}
    for name, values in _arrays(network).items():
        parts = {name: values} if values.ndim == 1 else {f"{name}[{axis}]": part for axis, part in enumerate(values.T)}
        columns |= {key: part.tolist() for key, part in parts.items()}  # Python's numbers are written with every digit
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip_longest(*columns.values(), fillvalue=""))
    write_atomically(path, text.getvalue().encode())


def read_network(path: Path | str, inlet: str = "inlet", outlet: str = "outlet") -> PoreNetwork:
    """Read a CSV file of OpenPNM's ``network_to_csv`` or of ``write_network``; ``as_batch`` makes a graph of it.

    Raises:
        InputError: one line that names the file and what is wrong in it; rows are numbered with the header as row 1.
    """
    sheet = Sheet.read(Path(path))
    arrays: dict[str, NDArray[Any]] = {name: sheet.numbers(name, width) for name, width in PROPERTIES.items()}
    for name in (_pore(inlet), _pore(outlet)):
        arrays[name] = np.array(sheet.values(name, _boolean, "True or False"), dtype=bool)
    return as_pore_network(arrays, inlet, outlet, str(path))


@dataclass(frozen=True)
class Sheet:
    """The cells of a file by column, read but not yet believed."""

    path: Path
    columns: Mapping[str, Sequence[str]]

    @staticmethod
    def read(path: Path) -> Sheet:
        try:
            with path.open(newline="", encoding="utf-8-sig") as stream:
                rows = list(csv.reader(stream, strict=True, skipinitialspace=True))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"{path}: expected a table, but could not read it: {shorten(str(error), 200)}") from error
        expect(len(rows) > 0, str(path), "a table", "nothing")
        header = rows[0]
        twice = [name for name, times in Counter(header).items() if times > 1]
        expect(not twice, str(path), "every column once", f"{_listed(twice)} again")
        cells = [row or [""] * len(header) for row in rows]  # an empty line is a row of empty cells
        for index, row in enumerate(cells):
            expect(len(row) == len(header), f"{path}, row {index + 1}", f"{len(header)} cells", len(row))
        return Sheet(path, {name: below for name, *below in zip(*cells, strict=True)})

    def numbers(self, name: str, width: int) -> Floats:
        """A property, [count] or, from as many columns, [count, width]."""
        keys = [name] if width == 1 else [f"{name}[{axis}]" for axis in range(width)]
        columns = np.array([self.values(key, _number, "a finite number") for key in keys], dtype=np.float64)
        return columns[0] if width == 1 else columns.T

    def values(self, name: str, parse: Callable[[str], Any], expected: str) -> list[Any]:
        """Every pore or throat has a value in its column; the rest is padding, and empty."""
        count = max((index + 1 for index, cell in enumerate(self.column(COUNTED[_element(name)])) if cell), default=0)
        found = []
        for index, cell in enumerate(self.column(name)):
            try:
                found += [parse(cell)] if index < count or cell else []
            except ValueError:
                self.refuse(index, name, expected, cell)
        expect(len(found) == count, f"{self.path}, column {name!r}", f"{count} values", len(found))
        return found

    def column(self, name: str) -> Sequence[str]:
        expect(name in self.columns, str(self.path), f"a column {name!r}", _listed(self.columns))
        return self.columns[name]

    def refuse(self, index: int, name: str, expected: str, cell: str) -> NoReturn:
        came = shorten(repr(cell), 60) if cell else "nothing"
        raise InputError(f"{self.path}, row {index + 2}, column {name!r}: expected {expected}, but got {came}")


def _number(cell: str) -> float:
    value = float(cell)
    if not np.isfinite(value) or "_" in cell:  # Python reads 1_0 as 10, and nobody else does
        raise ValueError(cell)
    return value


def _boolean(cell: str) -> bool:
    if cell.lower() not in ("true", "false"):
        raise ValueError(cell)
    return cell.lower() == "true"
