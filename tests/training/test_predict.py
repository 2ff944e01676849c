from __future__ import annotations

import pandas
import pytest
import torch

from convergent import InputError
from convergent.tasks.folder import write_folder
from convergent.tasks.stream import stream_folder
from convergent.training import predict as module
from convergent.training.config import TrainConfig
from convergent.training.evaluate import Trained
from convergent.training.predict import WORK, predict
from convergent.training.problem import TEST, Problem
from convergent.training.run import save_model

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
    with pytest.raises(InputError, match="it was begun with, but got others"):
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
    with pytest.raises(InputError, match="ending: expected one of"):
        predict(model, networks, tmp_path / "other", "xlsx")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_no_networks_give_empty_tables(job, tmp_path, ending) -> None:
    model, networks = job
    for name in ("nodes", "edges"):
        pandas.read_csv(networks / f"{name}.csv").iloc[:0].to_csv(networks / f"{name}.csv", index=False)
    assert predict(model, networks, tmp_path / "out", ending)["graphs"] == 0
    assert [len(table) for table in tables(tmp_path / "out", ending)] == [0, 0]
