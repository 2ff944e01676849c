from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pandas
import pytest
import torch

from convergent import InputError
from convergent.storage.files import read_json
from convergent.storage.lock import InUse, owned
from convergent.tasks.folder import write_folder
from convergent.tasks.stream import stream_folder
from convergent.training import predict as module
from convergent.training.config import TrainConfig
from convergent.training.evaluate import Trained
from convergent.training.predict import JOB, SUMMARY, TABLES, WORK, predict
from convergent.training.problem import TEST, Problem
from convergent.training.run import save_model
from kills import FULL, Forks, contents

CONFIG = TrainConfig(task="value-iteration", model="CGS(8)", task_settings={"states": [8, 12], "actions": [2, 3]})
GRAPHS = 12


@pytest.fixture
def job(tmp_path):
    """A model file and a folder of networks."""
    problem = Problem.of(CONFIG)
    torch.manual_seed(0)
    extra = {"config": CONFIG.to_json(), "schema": problem.schema.to_json()}
    save_model(tmp_path / "model.safetensors", problem.build(), extra)
    write_folder(tmp_path / "networks", problem.batch(TEST, 0, GRAPHS), problem.schema)
    return tmp_path / "model.safetensors", tmp_path / "networks"


def tables(folder, ending="csv"):
    read = pandas.read_csv if ending == "csv" else pandas.read_parquet
    return read(folder / f"predictions.{ending}"), read(folder / f"graphs.{ending}")


def test_blocks_do_not_change_the_answer(job, tmp_path) -> None:
    heard: list[int] = []
    result = predict(*job, tmp_path / "whole", report=heard.append)
    assert result["graphs"] == GRAPHS
    assert sum(heard) == result["nodes"]
    predict(*job, tmp_path / "pieces", rows=15)
    (nodes, graphs), (same_nodes, same_graphs) = tables(tmp_path / "whole"), tables(tmp_path / "pieces")
    assert (nodes[["graph", "node"]] == same_nodes[["graph", "node"]]).all().all()
    assert abs(nodes["value"] - same_nodes["value"]).max() < 1e-5
    assert (graphs[["graph", "nodes", "edges", "status"]] == same_graphs[["graph", "nodes", "edges", "status"]]).all().all()
    assert list(graphs.columns) == ["graph", "nodes", "edges", "error_bound", "iterations", "status"]
    assert (graphs["error_bound"] <= 1e-5).all()
    assert (graphs["iterations"] >= 1).all()
    assert set(graphs["status"]) == {"converged"}
    assert not (tmp_path / "whole" / WORK).exists()


def test_it_is_what_the_model_says(job, tmp_path) -> None:
    trained = Trained.load(job[0])
    answer, _ = trained(trained.problem().batch(TEST, 0, GRAPHS))
    predict(*job, tmp_path / "out", "parquet")
    nodes, _ = tables(tmp_path / "out", "parquet")
    torch.testing.assert_close(torch.tensor(nodes["value"].to_numpy()), answer[:, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_cut_off_and_resumed(job, tmp_path, monkeypatch, ending) -> None:
    predict(*job, tmp_path / "whole", ending, rows=15)
    calls = []

    def cut(nodes: int) -> None:
        calls.append(nodes)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict(*job, tmp_path / "cut", ending, rows=15, report=cut)
    assert [file.name for file in (tmp_path / "cut").iterdir()] == [WORK]
    with pytest.raises(InputError, match="holds unfinished predictions"):
        predict(*job, tmp_path / "cut", ending, rows=15)
    with pytest.raises(InputError, match="expected the rows it was started with, 15, but got 20"):
        predict(*job, tmp_path / "cut", ending, rows=20, resume=True)
    used = []
    whole_tables = module._tables
    monkeypatch.setattr(module, "_tables", lambda *arguments: used.append(1) or whole_tables(*arguments))
    result = predict(*job, tmp_path / "cut", ending, rows=15, resume=True)
    assert result["graphs"] == GRAPHS
    blocks = len(list(stream_folder(job[1], Trained.load(job[0]).schema, rows=15)))
    assert len(used) == blocks - len(calls) > 0  # what was done was not done again
    for one, other in zip(tables(tmp_path / "cut", ending), tables(tmp_path / "whole", ending), strict=True):
        pandas.testing.assert_frame_equal(one, other)


def test_answers_are_not_needed_and_not_overwritten(job, tmp_path) -> None:
    model, networks = job
    nodes = pandas.read_csv(networks / "nodes.csv").drop(columns="value")
    nodes.to_csv(networks / "nodes.csv", index=False)
    predict(model, networks, tmp_path / "out")
    with pytest.raises(InputError, match=r"expected a new folder, but it holds predictions.csv"):
        predict(model, networks, tmp_path / "out")
    (tmp_path / "out" / SUMMARY).unlink()  # as others write such tables
    for resume in (False, True):
        with pytest.raises(InputError, match=r"expected a new folder, but it holds predictions.csv"):
            predict(model, networks, tmp_path / "out", resume=resume)
    with pytest.raises(InputError, match="ending: expected one of"):
        predict(model, networks, tmp_path / "other", "xlsx")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_no_networks_give_empty_tables(job, tmp_path, ending) -> None:
    model, networks = job
    for name in ("nodes", "edges"):
        pandas.read_csv(networks / f"{name}.csv").iloc[:0].to_csv(networks / f"{name}.csv", index=False)
    assert predict(model, networks, tmp_path / "out", ending)["graphs"] == 0
    assert [len(table) for table in tables(tmp_path / "out", ending)] == [0, 0]


# --- inputs ---


def cut_after(blocks: int):
    """A report that stops the work after so many blocks."""
    calls = []

    def cut(nodes: int) -> None:
        calls.append(nodes)
        if len(calls) == blocks:
            raise KeyboardInterrupt

    return cut


def change_a_cell(networks: Path) -> str:
    """Another number of the same length in the last row of nodes; what was there before."""
    before = (networks / "nodes.csv").read_text()
    digit = re.search(r"(\d)\n$", before)
    assert digit is not None
    (networks / "nodes.csv").write_text(f"{before[:-2]}{(int(digit[1]) + 1) % 10}\n")
    return before


def test_changed_inputs_are_not_resumed(job, tmp_path) -> None:
    model, networks = job
    with pytest.raises(KeyboardInterrupt):
        predict(*job, tmp_path / "out", rows=15, report=cut_after(2))
    before = change_a_cell(networks)
    with pytest.raises(InputError, match=r"out: nodes.csv has changed since this was started; restore the files, or predict into"):
        predict(*job, tmp_path / "out", rows=15, resume=True)
    (networks / "nodes.csv").write_text(before)
    content = model.read_bytes()
    torch.manual_seed(1)
    save_model(model, Problem.of(CONFIG).build(), {"config": CONFIG.to_json(), "schema": Problem.of(CONFIG).schema.to_json()})
    with pytest.raises(InputError, match=r"out: model.safetensors has changed since"):
        predict(*job, tmp_path / "out", rows=15, resume=True)
    model.write_bytes(content)
    assert predict(*job, tmp_path / "out", rows=15, resume=True)["graphs"] == GRAPHS


def test_inputs_that_change_while_they_are_read_give_no_tables(job, tmp_path) -> None:
    with pytest.raises(InputError, match=r"out: nodes.csv has changed since this was started; predict them again"):
        predict(*job, tmp_path / "out", rows=15, report=lambda _: change_a_cell(job[1]))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("row", [0, 60])
def test_what_was_refused_can_be_corrected(job, tmp_path, row) -> None:
    model, networks = job
    nodes = pandas.read_csv(networks / "nodes.csv", dtype=str)
    wrong = nodes.copy()
    wrong.loc[row, "zero"] = "?"
    wrong.to_csv(networks / "nodes.csv", index=False)
    with pytest.raises(InputError, match=rf"row {row + 2}, column 'zero': expected a finite number"):
        predict(model, networks, tmp_path / "out", rows=15)
    assert not (tmp_path / "out").exists()
    nodes.to_csv(networks / "nodes.csv", index=False)
    assert predict(model, networks, tmp_path / "out", rows=15)["graphs"] == GRAPHS


def test_a_table_that_cannot_be_read_for_now_costs_nothing(job, tmp_path, monkeypatch) -> None:
    def fails(*arguments: object) -> Iterator[object]:
        yield from list(stream_folder(*arguments))[:2]
        raise InputError("nodes.csv: expected a table, but could not read it") from OSError(5, "Input/output error")

    monkeypatch.setattr(module, "stream_folder", fails)
    with pytest.raises(InputError, match="could not read it"):
        predict(*job, tmp_path / "out", rows=15)
    monkeypatch.undo()
    assert (tmp_path / "out" / WORK / "1.json").exists()
    assert predict(*job, tmp_path / "out", rows=15, resume=True)["graphs"] == GRAPHS


def test_one_process_at_a_time(job, tmp_path) -> None:
    with pytest.raises(KeyboardInterrupt):
        predict(*job, tmp_path / "out", rows=15, report=cut_after(2))
    before = contents(tmp_path / "out")
    with owned(tmp_path / "out"), pytest.raises(InUse, match="out: in use by another process"):
        predict(*job, tmp_path / "out", rows=15, resume=True)
    assert contents(tmp_path / "out") == before


def test_the_tables_say_what_they_were_made_from(job, tmp_path) -> None:
    result = predict(*job, tmp_path / "out")
    summary = read_json(tmp_path / "out" / SUMMARY)
    assert summary["result"] == result
    assert set(summary["job"]["inputs"]) == {"model.safetensors", "nodes.csv", "edges.csv"}
    assert predict(*job, tmp_path / "out", resume=True) == result  # what is complete stays as it is
    change_a_cell(job[1])
    with pytest.raises(InputError, match=r"nodes.csv has changed"):
        predict(*job, tmp_path / "out", resume=True)


# --- kills ---


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as found:
        yield found


PREDICT = """
from convergent.training.predict import predict
print(predict({model!r}, {networks!r}, {out!r}, {ending!r}, resume={resume}, rows=70))
"""


def source(job, out: Path, ending: str, resume: bool = False) -> str:
    model, networks = map(str, job)
    return PREDICT.format(model=model, networks=networks, out=str(out), ending=ending, resume=resume)


def answers(folder: Path) -> dict[str, bytes]:
    """All files, which have to be the tables and their summary."""
    found = contents(folder)
    assert {Path(name).stem for name in found} == {*TABLES, Path(SUMMARY).stem}
    return found


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_killed_at_every_file_operation_and_resumed(forks, job, tmp_path, ending) -> None:
    whole = forks.run(source(job, tmp_path / "whole", ending), tmp_path / "whole")
    assert whole.code == 0, whole.complained
    wanted = answers(tmp_path / "whole")
    for number in range(1, whole.operations + 1):
        out = tmp_path / str(number)
        assert forks.run(source(job, out, ending), out, at=number).code == -9
        resumed = forks.run(source(job, out, ending, resume=True), out)
        assert (resumed.code, resumed.said) == (0, whole.said), (number, resumed.complained)
        assert answers(out) == wanted, number
    assert whole.operations > 40


def test_a_resumed_one_may_be_killed_again(forks, job, tmp_path) -> None:
    out = tmp_path / "out"
    forks.run(source(job, tmp_path / "whole", "csv"), tmp_path / "whole")
    kills = 0
    while (found := forks.run(source(job, out, "csv", resume=True), out, at=25)).code == -9:
        kills += 1
        assert kills < 20
    assert found.code == 0, found.complained
    assert kills > 2
    assert answers(out) == answers(tmp_path / "whole")


def test_a_full_disk_loses_nothing_that_was_done(forks, job, tmp_path) -> None:
    def command(out: Path) -> list[object]:
        return ["predict", *job, "--out", out]

    whole = forks.run(command(tmp_path / "whole"), tmp_path / "whole")
    refused = 0
    for number in range(1, whole.operations + 1, 3):
        out = tmp_path / str(number)
        full = forks.run(command(out), out, at=number, fault=FULL)
        if full.code != 0:  # to move and remove what is complete needs no space
            lines = [line for line in full.complained.splitlines() if not line.startswith("nodes ")]
            assert full.code == 2, full.complained
            assert len(lines) == 1, full.complained
            assert re.fullmatch(r"convergent: .*: No space left on device", lines[0])
            assert forks.run([*command(out), "--resume"], out).code == 0
            refused += 1
        assert answers(out).keys() == answers(tmp_path / "whole").keys()
    assert refused > whole.operations // 5


def test_work_of_another_version_is_not_resumed(job, tmp_path) -> None:
    with pytest.raises(KeyboardInterrupt):
        predict(*job, tmp_path / "out", rows=15, report=cut_after(2))
    (tmp_path / "out" / WORK / JOB).write_text('{"model": "0", "tables": {"nodes.csv": 10}}')
    with pytest.raises(InputError, match="expected predictions of this version of convergent"):
        predict(*job, tmp_path / "out", rows=15, resume=True)
