from __future__ import annotations

import os
import time

import pandas
import pytest

from convergent import InputError
from convergent.storage.fingerprint import Inputs, fingerprint, require_same


def test_it_is_the_content_that_counts(tmp_path) -> None:
    for name, content in (("a", b"1,2\n"), ("b", b"1,2\n"), ("c", b"1,3\n")):
        (tmp_path / name).write_bytes(content)
    os.utime(tmp_path / "b", (1, 1))
    a, b, c = (fingerprint(tmp_path / name) for name in "abc")
    assert a == b != c


def test_what_has_changed_is_named() -> None:
    before = {"nodes.csv": "1", "edges.csv": "2", "old.csv": "3"}
    require_same("out", before, before, "do something")
    with pytest.raises(InputError, match=r"^out: nodes.csv has changed since this was started; do something$"):
        require_same("out", before, {**before, "nodes.csv": "4"}, "do something")
    with pytest.raises(InputError, match=r"^out: nodes.parquet \(new\), old.csv \(missing\) have changed"):
        require_same("out", before, {"nodes.csv": "1", "edges.csv": "2", "nodes.parquet": "5"}, "do something")
    with pytest.raises(InputError, match="have changed"):
        require_same("out", ["of another kind"], before, "do something")


def test_inputs_that_change_while_they_are_read(tmp_path) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text("1,2\n")
    inputs = Inputs([file])
    inputs.require_unchanged("out", "again")
    os.utime(file, (1, 1))  # touched, and the same
    inputs.require_unchanged("out", "again")
    file.write_text("1,3\n")
    with pytest.raises(InputError, match=r"out: nodes\.csv has changed"):
        inputs.require_unchanged("out", "again")
    file.unlink()
    with pytest.raises(InputError, match=r"out: nodes.csv \(missing\)"):
        inputs.require_unchanged("out", "again")


def test_it_costs_little_beside_reading(tmp_path) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text("graph,node,value\n" + "".join(f"g{row // 9},n{row},{row / 7}\n" for row in range(200_000)))

    def seconds(work) -> float:
        times = []
        for _ in range(3):
            began = time.process_time()
            work(file)
            times.append(time.process_time() - began)
        return min(times)

    assert seconds(fingerprint) < 0.3 * seconds(lambda path: pandas.read_csv(path, dtype=str, keep_default_na=False))
