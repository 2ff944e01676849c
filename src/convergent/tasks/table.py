"""The cells of a table, CSV or Parquet, as text; and what their columns mean."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from convergent.errors import InputError, expect, first_line
from convergent.settings import Name, check_fields, shown

if TYPE_CHECKING:
    import pandas

MOST_CATEGORIES = 100
# Text that stands for a number or for several, or says that there is none: never meant as a category.
NO_CATEGORY = re.compile(r"\s*([+-]?(nan|inf|infinity)|[+-]?[\d.]*\d,\d+(e[+-]?\d+)?|[\[({].*[\])}])\s*", re.IGNORECASE | re.DOTALL)
SURPLUS = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")  # pandas' words
INDEX_COLUMN = re.compile(r"__index_level_\d+__")  # pandas' own, of a table that was written with its index


@dataclass(frozen=True)
class Column:
    """One column of a table; with categories it is text and becomes as many columns of zeros and ones.

    With ``log`` the model takes the logarithm of its numbers, which are 0 or more.
    """

    name: Name
    categories: tuple[str, ...] | None = None
    log: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.categories is not None:
            expect(0 < len(set(self.categories)) == len(self.categories), "categories", "texts, each once", self.categories)
            expect(not self.log, "log", "false for a column of text", self.log)

    @property
    def width(self) -> int:
        return 1 if self.categories is None else len(self.categories)


class Table:
    """A table of text cells, read but not yet believed. The index of the cells says which row of the file each is, from 0."""

    def __init__(self, file: Path, cells: pandas.DataFrame, ids: tuple[str, ...]):
        self.file, self.cells, self.ids = file, cells, ids
        for name in ids:
            self.require(name)
            empty = cells[name].to_numpy() == ""
            if empty.any():
                self.refuse(int(empty.argmax()), name, "an id", "nothing")

    @property
    def features(self) -> list[str]:
        return [name for name in self.cells.columns if name not in self.ids]

    def require(self, name: str) -> None:
        if name not in self.cells.columns:
            raise InputError(f"{self.file}: expected a column {name!r}, but got {', '.join(self.cells.columns)}")

    def refuse(self, row: int, column: str, expected: str, came: object) -> NoReturn:
        number = int(self.cells.index[row]) + 2  # the header is row 1
        raise InputError(f"{self.file}, row {number}, column {column!r}: expected {expected}, but got {came}")

    def describe(self, name: str, log: bool = False) -> Column:
        """Numbers, unless no cell is one: then text, one category per value."""
        values = self.cells[name].to_numpy()
        numbers = _numbers(values)
        if len(values) == 0 or np.isfinite(numbers).any():
            return Column(name, log=log)
        categories = sorted(set(values))
        for value in categories:
            if value == "" or NO_CATEGORY.fullmatch(value):
                row = int((values == value).argmax())
                self.refuse(row, name, "a number with a decimal point, or text" if value else "a value", _cell(value))
        if len(categories) > MOST_CATEGORIES:
            raise InputError(
                f"{self.file}, column {name!r}: expected numbers or at most {MOST_CATEGORIES} categories, but got {len(categories)}"
            )
        return Column(name, tuple(categories))

    def values(self, column: Column) -> NDArray[np.float32]:
        """[rows, width]"""
        self.require(column.name)
        cells = self.cells[column.name].to_numpy()
        if column.categories is None:
            return self.numbers(column.name, column.log)[:, None]
        place = {value: index for index, value in enumerate(column.categories)}
        codes = np.array([place.get(cell, -1) for cell in cells], dtype=np.int64)
        if (codes < 0).any():
            row = int((codes < 0).argmax())
            self.refuse(row, column.name, f"one of {', '.join(column.categories[:10])}", _cell(cells[row]))
        return np.eye(column.width, dtype=np.float32)[codes]

    def numbers(self, name: str, log: bool = False) -> NDArray[np.float32]:
        """A column of finite numbers; those whose logarithm is taken are 0 or more."""
        self.require(name)
        cells = self.cells[name].to_numpy()
        found = _numbers(cells)
        with np.errstate(over="ignore"):
            single = found.astype(np.float32)
        good = np.isfinite(single)
        if not good.all():
            row = int(good.argmin())
            large = np.isfinite(found[row])
            self.refuse(row, name, "a number of at most 3.4e38 in size" if large else "a finite number", _cell(cells[row]))
        if log and (single < 0).any():
            row = int((single < 0).argmax())
            self.refuse(row, name, "a number, 0 or more, as the model takes its logarithm", _cell(cells[row]))
        return single


def _cell(text: str) -> str:
    return shown(text) if text else "nothing"


# --- files ---


def read_cells(file: Path, rows: int | None) -> Iterator[pandas.DataFrame]:
    """The cells of a table as text, that many rows at a time (None: all at once); one frame at least.

    The index of a frame counts the rows of the file from 0, empty ones included, which are left out.
    """
    import pandas

    try:
        frames = _csv_cells(file, rows) if file.suffix == ".csv" else _parquet_cells(file, rows)
        for frame in frames:
            yield _without_empty_rows(frame)
    except (ValueError, OSError, pandas.errors.ParserError, csv.Error) as error:
        if isinstance(error, InputError):
            raise
        reason = first_line(error)
        if surplus := SURPLUS.search(reason):
            cells, row, found = surplus.groups()
            raise InputError(f"{file}, row {row}: expected {cells} cells, but got {found}") from error
        raise InputError(f"{file}: expected a table, but could not read it: {reason}") from error


def _csv_cells(file: Path, rows: int | None) -> Iterator[pandas.DataFrame]:
    import pandas

    with file.open(newline="", encoding="utf-8-sig") as stream:
        header = next(csv.reader(stream, skipinitialspace=True), None)
    if header is not None:
        _check_header(file, header)
    settings = {"dtype": str, "keep_default_na": False, "skipinitialspace": True, "skip_blank_lines": False}
    with pandas.read_csv(file, chunksize=rows or sys.maxsize, **settings) as frames:
        for frame in frames:
            if not isinstance(frame.index, pandas.RangeIndex):  # what pandas makes of a first row that is wider than the header
                raise InputError(f"{file}, row 2: expected {len(frame.columns)} cells, but got more")
            yield frame


def _check_header(file: Path, header: Sequence[str]) -> None:
    """Of two columns with one name pandas would rename the second in silence, and make up a name where there is none."""
    if not header:
        raise InputError(f"{file}, row 1: expected the names of the columns, but got an empty row")
    for index, name in enumerate(header):
        if not name:
            raise InputError(f"{file}, row 1: expected a name for every column, but column {index + 1} has none")
        if name in header[:index]:
            raise InputError(f"{file}: expected every column once, but {name!r} is there twice")


def _without_empty_rows(frame: pandas.DataFrame) -> pandas.DataFrame:
    if frame.shape[1] == 0 or not (suspects := frame.iloc[:, 0].to_numpy() == "").any():
        return frame
    empty = suspects.copy()
    empty[suspects] = (frame[suspects] == "").all(axis=1).to_numpy()
    return frame[~empty]


def count_rows(file: Path) -> int:
    """Of a Parquet table."""
    with _opened(file) as stream:
        return int(stream.metadata.num_rows)


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """A Parquet table; whatever pyarrow finds wrong with it is one line."""
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(file) as stream:
            yield stream
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{file}: expected a table, but could not read it: {first_line(error)}") from error


def _parquet_cells(file: Path, rows: int | None) -> Iterator[pandas.DataFrame]:
    import pandas
    import pyarrow

    with _opened(file) as stream:
        columns = [field for field in stream.schema_arrow if not INDEX_COLUMN.fullmatch(field.name)]
        _check_header(file, [field.name for field in columns])
        for field in columns:
            if pyarrow.types.is_nested(field.type) or "binary" in str(field.type):
                raise InputError(f"{file}, column {field.name!r}: expected numbers or text, but got {field.type}")
        names, first = [field.name for field in columns], 0
        for chunk in stream.iter_batches(rows or max(stream.metadata.num_rows, 1), columns=names):
            raw = chunk.to_pandas(ignore_metadata=True, integer_object_nulls=True)
            raw.index = pandas.RangeIndex(first, first + len(raw))
            first += len(raw)
            yield raw.astype(object).where(raw.notna(), "").map(_text)
        if first == 0:
            yield pandas.DataFrame(columns=names, dtype=object)


def _text(cell: object) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)


def _numbers(cells: NDArray[Any]) -> NDArray[np.float64]:
    """NaN where a cell is no number."""
    import pandas

    return pandas.to_numeric(pandas.Series(cells, dtype=object), errors="coerce").to_numpy(dtype=np.float64)
