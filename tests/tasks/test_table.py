from __future__ import annotations

import warnings
from pathlib import Path

import pandas
import pytest

from convergent import InputError
from convergent.tasks.table import Column, Table, count_rows, read_cells


def read(path: Path, text: str, rows: int | None = None) -> Table:
    path.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return Table(path, pandas.concat(read_cells(path, rows)), ("id",))


@pytest.mark.parametrize("rows", [None, 1, 2])
def test_empty_rows_are_left_out_and_counted(tmp_path, rows) -> None:
    table = read(tmp_path / "t.csv", "id,a\n\nx,1\n,\n\ny,two\n\n", rows)
    assert table.cells.to_numpy().tolist() == [["x", "1"], ["y", "two"]]
    with pytest.raises(InputError, match=r"t\.csv, row 6, column 'a': expected a finite number, but got 'two'"):
        table.numbers("a")


@pytest.mark.parametrize("rows", [None, 1, 2])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,a\nx,1,7\ny,2\n", "row 2: expected 2 cells, but got more"),
        ("id,a\nx,1,7\ny,2,7\n", "row 2: expected 2 cells, but got more"),
        ("id,a\nx,1\ny,2,7\n", "row 3: expected 2 cells, but got 3"),
        ("id,a\nx,1\n\nz,3\ny,2,7\n", "row 5: expected 2 cells, but got 3"),
        ("id,a,a\nx,1,2\n", "expected every column once, but 'a' is there twice"),
        ("id,,a\nx,1,2\n", "row 1: expected a name for every column, but column 2 has none"),
        ("\nid,a\nx,1\n", "row 1: expected the names of the columns, but got an empty row"),
        ("", "expected a table, but could not read it"),
        ("a\n1\n", "expected a column 'id', but got a"),
        ("id,a\n,1\n", "row 2, column 'id': expected an id, but got nothing"),
    ],
)
def test_rows_that_do_not_fit(tmp_path, text, message, rows) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path / "t.csv", text, rows)


@pytest.mark.parametrize("cell", ["nan", "NaN", "inf", "-Infinity", '"1,5"', '"-1.234,5"', '"[1, 2]"', "(1)", "{}"])
def test_what_stands_for_a_number_is_no_category(tmp_path, cell) -> None:
    table = read(tmp_path / "t.csv", f"id,a\nx,{cell}\ny,{cell}\n")
    with pytest.raises(InputError, match="row 2, column 'a': expected a number with a decimal point, or text, but got"):
        table.describe("a")


@pytest.mark.parametrize("cells", [("red", "blue"), ("True", "False"), ("5 mm", "6 mm"), ("a,b", "c"), ("nano", "info")])
def test_text_is_a_category(tmp_path, cells) -> None:
    table = read(tmp_path / "t.csv", "id,a\n" + "".join(f'{number},"{cell}"\n' for number, cell in enumerate(cells)))
    assert table.describe("a").categories == tuple(sorted(cells))


def test_numbers_that_float32_cannot_hold(tmp_path) -> None:
    table = read(tmp_path / "t.csv", "id,a,b\nx,3.4e38,1\ny,-1e39,1e999\n")
    with pytest.raises(InputError, match=r"row 3, column 'a': expected a number of at most 3.4e38 in size, but got '-1e39'"):
        table.numbers("a")
    with pytest.raises(InputError, match="row 3, column 'b': expected a finite number, but got '1e999'"):
        table.numbers("b")


def test_a_logarithm_is_taken_of_what_is_not_negative(tmp_path) -> None:
    table = read(tmp_path / "t.csv", "id,a\nx,0\ny,-1\n")
    assert table.values(Column("a")).tolist() == [[0.0], [-1.0]]
    with pytest.raises(InputError, match="row 3, column 'a': expected a number, 0 or more, as the model takes its logarithm"):
        table.values(Column("a", log=True))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"name": ""}, "name: expected a name"),
        ({"name": "a", "categories": ()}, "categories: expected texts, each once"),
        ({"name": "a", "categories": ("x", "x")}, "categories: expected texts, each once"),
        ({"name": "a", "categories": "xy"}, "categories: expected None or a list of texts, but got 'xy'"),
        ({"name": "a", "categories": ("x",), "log": True}, "log: expected false"),
    ],
)
def test_columns_are_checked(column, message) -> None:
    with pytest.raises(InputError, match=message):
        Column(**column)


def test_parquet(tmp_path) -> None:
    path = tmp_path / "t.parquet"
    frame = pandas.DataFrame({"id": [1, None, 3], "a": [0.5, 2.0, None], "b": ["x", "y", "z"]}, index=[7, 8, 9])
    frame.astype({"id": "Int64"}).to_parquet(path)
    chunks = list(read_cells(path, 2))
    assert [chunk.index.tolist() for chunk in chunks] == [[0, 1], [2]]
    assert pandas.concat(chunks).to_numpy().tolist() == [["1", "0.5", "x"], ["", "2", "y"], ["3", "", "z"]]
    assert count_rows(path) == 3


def test_parquet_that_is_no_table(tmp_path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "t.parquet"
    for columns, message in (
        ({"id": [1], "a": [[1.0]]}, "column 'a': expected numbers or text, but got list"),
        ({"id": [1], "a": [b"x"]}, "column 'a': expected numbers or text, but got binary"),
    ):
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        with pytest.raises(InputError, match=message):
            list(read_cells(path, None))
    twins = pyarrow.table([[1], [2]], names=["id", "id"])
    pyarrow.parquet.write_table(twins, path)
    with pytest.raises(InputError, match="expected every column once, but 'id' is there twice"):
        list(read_cells(path, None))
    path.write_bytes(path.read_bytes()[:50])
    for look in (lambda: list(read_cells(path, None)), lambda: count_rows(path)):
        with pytest.raises(InputError, match="expected a table, but could not read it"):
            look()
