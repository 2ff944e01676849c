"""The command line, as a person would use it: one clear line and exit code 2 for every mistake."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_type_hints

import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.models import OptionInfo

from command import answered, convergent, refused
from convergent import InputError
from convergent.cli import work
from convergent.cli.app import app
from convergent.storage.lock import owned
from convergent.training import predict as predicting
from convergent.training.keeper import Keeper
from convergent.training.run import CHECKPOINT, MODEL, RESULT, read_json

ROOT = Path(__file__).parents[2]
TINY = ["--graphs", "2", "--validation-graphs", "2", "--set", "pores=20,30"]


@pytest.fixture(scope="module")
def pores(tmp_path_factory) -> Path:
    """A run on pore networks."""
    folder = tmp_path_factory.mktemp("runs") / "pores"
    answered("train", "pore-networks", "--steps", 4, "--validate-every", 2, "--out", folder, *TINY)
    return folder


@pytest.fixture(scope="module")
def networks(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "networks"
    answered("data", "pore-networks", "--graphs", 6, "--out", folder, "--set", "pores=20,30")
    return folder


COMMANDS = ["demo", "train", "evaluate", "predict", "models", "tasks", "data", "bench", "reproduce"]
HEAVY = ("torch", "numpy", "scipy", "numba", "pandas", "lightning", "torch_geometric", "matplotlib", "plotly")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(command) -> None:
    code, said, complained = convergent(*([command] if command else []), "--help")
    assert (code, complained) == (0, "")
    assert "Usage: convergent" in said
    if command:
        assert "Example" in said


@pytest.mark.parametrize("command", app.registered_commands, ids=lambda command: command.callback.__name__)
def test_options_are_named_where_their_placeholder_is_their_name(command) -> None:
    """typer 0.27 takes such a placeholder for the name of the option, in capitals."""
    for name, hint in get_type_hints(command.callback, include_extras=True).items():
        for option in getattr(hint, "__metadata__", ()):
            if isinstance(option, OptionInfo) and option.metavar == name.upper():
                assert f"--{name}" in (option.default, *option.param_decls)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([command, "--help"] for command in COMMANDS)], ids=" ".join)
def test_help_imports_nothing_heavy(arguments) -> None:
    code = f"""
import sys
from convergent.cli import main
sys.argv = ["convergent", *{arguments!r}]
try:
    main()
except SystemExit as stop:
    assert not stop.code
print("heavy:", [name for name in {HEAVY!r} if name in sys.modules])
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy: []"


def test_version() -> None:
    code, said, _ = convergent("--version")
    assert code == 0
    assert said.strip()[0].isdigit()


def test_models() -> None:
    rows = answered("models")
    counts = {(row["name"], row["task"]): (row["parameters"], row["paper"]) for row in rows}
    assert counts["CGS(64)", "value-iteration"] == (280_069, 280_069)
    assert {row["task"] for row in answered("models", "--task", "pore-networks")} == {"pore-networks"}
    code, said, _ = convergent("models", width=80)
    assert code == 0
    assert "280,069" in said
    assert len([line for line in said.splitlines() if "│" in line]) == len(rows)  # no row needs a second line


def test_tasks_fit_a_narrow_terminal() -> None:
    code, said, _ = convergent("tasks", width=80)
    assert code == 0
    for words in ("--set pores= ", "--target ", "(required)", "the smallest and the largest number of states"):
        assert words in said
    assert all(title in said.splitlines()[0] or "\n" + title in said for title in answered_names("tasks"))


def answered_names(command: str) -> list[str]:
    return [f"{row['name']}: " for row in answered(command)]


def test_options_of_a_task_are_asked_for() -> None:
    assert "--data: expected a folder with two tables, nodes and edges (required by task folder)" in refused("train", "folder")
    for command in ("train", "data"):
        asked = refused(command, "folder", "--data", "networks")
        assert "--target: expected a column of nodes to predict, or several (required by task folder), but got none" in asked
    assert "--set name=...: expected a data set, such as MUTAG" in refused("train", "classification")
    for option, value, owner in (("--data", "x", "folder"), ("--target", "x", "folder"), ("--data-root", "x", "classification")):
        assert f"{option}: expected none with task pore-networks, as it belongs to task {owner}" in refused(
            "train", "pore-networks", option, value
        )
    assert "--data: expected no --set path= beside it, but got both" in refused(
        "data", "folder", "--data", "x", "--set", "path=y", "--target", "z"
    )


def test_tasks() -> None:
    rows = {row["name"]: row["settings"] for row in answered("tasks")}
    assert rows["pore-networks"]["pores"] == [50, 200]
    assert set(rows) == {"value-iteration", "pore-networks", "classification", "folder"}


def test_train_evaluate_predict(pores, networks, tmp_path) -> None:
    larger = answered("evaluate", pores, "--graphs", 3, "--set", "pores=60,60")
    assert larger["graphs"] == 3
    assert larger["solves"]["not_converged"] == 0
    assert set(larger["measures"]) == {"mse", "mean_error", "largest_error"}
    again = answered("evaluate", pores / MODEL, "--graphs", 3, "--set", "pores=60,60")
    assert again["measures"] == larger["measures"]
    on_tables = answered("evaluate", pores, "--data", networks)
    assert on_tables["graphs"] == 6
    done = answered("predict", pores, networks, "--out", tmp_path / "answers")
    assert (done["graphs"], done["files"]) == (6, ["predictions.csv", "graphs.csv"])
    predicted = pandas.read_csv(tmp_path / "answers" / "predictions.csv")
    exact = pandas.read_csv(networks / "nodes.csv")
    assert (predicted[["graph", "node"]] == exact[["graph", "node"]]).all().all()
    errors = ((predicted["pressure"] - exact["pressure"]) ** 2).groupby(exact["graph"]).mean()
    assert errors.mean() == pytest.approx(on_tables["measures"]["mse"], rel=1e-4)


def test_own_networks(networks, tmp_path) -> None:
    described = answered("data", "folder", "--data", networks, "--target", "pressure")
    assert (described["training graphs"], described["held out"], described["node features"]) == (5, 1, 7)
    run = tmp_path / "mine"
    result = answered("train", "folder", "--data", networks, "--target", "pressure", "--steps", 3, "--graphs", 2, "--out", run)
    assert result["folder"] == str(run)
    assert answered("predict", run, networks, "--out", tmp_path / "answers", "--format", "parquet")["graphs"] == 6
    assert len(pandas.read_parquet(tmp_path / "answers" / "graphs.parquet")) == 6


def test_people_get_tables(pores, networks, tmp_path) -> None:
    for arguments in (
        ["evaluate", pores, "--graphs", 2],
        ["predict", pores, networks, "--out", tmp_path / "a"],
        ["tasks"],
        ["data", "value-iteration", "--graphs", 2, "--out", tmp_path / "v"],
    ):
        code, said, complained = convergent(*arguments)
        assert code == 0, complained
        assert "━" in said


def test_wrong_words(tmp_path) -> None:
    assert "task: expected one of classification, folder" in refused("train", "chess")
    assert "or --resume RUN, but got neither" in refused("train")
    assert "model: expected one of CGS(4)" in refused("train", "pore-networks", "--model", "CGS(3)")
    assert "schedule: expected one of" in refused("train", "pore-networks", "--schedule", "never", "--out", tmp_path / "a")
    assert "steps: expected a whole number, 1 or more" in refused("train", "pore-networks", "--steps", 0)
    assert "--set: expected NAME=VALUE, but got 'pores'" in refused("train", "pore-networks", "--set", "pores")
    assert "task_settings: expected some of pores" in refused("train", "pore-networks", "--set", "colour=3")
    assert "pores: expected a range from 20 on" in refused("train", "pore-networks", "--set", "pores=5,2")
    assert "settings: expected some of node_features" in refused(
        "train", "pore-networks", "--model-set", "colour=3", "--out", tmp_path / "b"
    )
    assert "--device: expected cpu or cuda, but got 'abacus'" in refused("train", "pore-networks", "--device", "abacus")
    if not torch.cuda.is_available():
        for command in (["train", "pore-networks"], ["demo", "--out", tmp_path / "c"]):
            assert "--device: expected cpu, as there is no CUDA device" in refused(*command, "--device", "cuda")
    assert "No such option" in refused("train", "--speed", 3)
    assert "Invalid value" in refused("train", "pore-networks", "--steps", "many")
    assert "Missing" in refused("predict")
    assert "No such command" in refused("fly")
    assert "expected none with --resume" in refused("train", "pore-networks", "--resume", tmp_path)
    assert "--task: expected one of" in refused("models", "--task", "chess")
    assert "--out: expected a folder" in refused("data", "pore-networks")
    assert not list(tmp_path.iterdir())  # nothing that was refused has left a trace


def test_wrong_files(pores, networks, tmp_path) -> None:
    out = tmp_path / "out"
    assert "nothing.safetensors" in refused("predict", tmp_path / "nothing.safetensors", networks, "--out", out)
    assert "no such folder: " in refused("predict", pores, tmp_path / "nothing", "--out", out)
    assert "no such file: " in refused("train", "--resume", tmp_path)
    assert "it holds a run" in refused("train", "pore-networks", "--out", pores)
    (tmp_path / "text.safetensors").write_text("a model, believe me")
    assert "expected a safetensors file" in refused("predict", tmp_path / "text.safetensors", networks, "--out", out)
    torch.save({"weight": torch.ones(2)}, tmp_path / "torch.safetensors")
    assert "expected a safetensors file" in refused("evaluate", tmp_path / "torch.safetensors")
    shutil.copytree(networks, tmp_path / "other")
    nodes = pandas.read_csv(networks / "nodes.csv")
    nodes.drop(columns="diameter").to_csv(tmp_path / "other" / "nodes.csv", index=False)
    assert "nodes.csv: expected a column 'diameter'" in refused("predict", pores, tmp_path / "other", "--out", out)
    nodes.astype({"diameter": object}).assign(diameter="wide").to_csv(tmp_path / "other" / "nodes.csv", index=False)
    assert "row 2, column 'diameter': expected a finite number, but got 'wide'" in refused(
        "predict", pores, tmp_path / "other", "--out", tmp_path / "out2"
    )
    assert "expected the answers in columns pressure" in refused(
        "evaluate", pores, "--data", _without_answers(networks, tmp_path / "bare")
    )


def _without_answers(networks: Path, copy: Path) -> Path:
    shutil.copytree(networks, copy)
    pandas.read_csv(networks / "nodes.csv").drop(columns="pressure").to_csv(copy / "nodes.csv", index=False)
    return copy


def test_data_are_found_from_elsewhere(networks, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(networks.parent)
    arguments = ["--target", "pressure", "--steps", 2, "--graphs", 2, "--out", tmp_path / "mine"]
    answered("train", "folder", "--data", networks.name, *arguments)
    answered("train", "folder", "--set", f"path={networks.name}", *arguments[:-1], tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "other"):
        assert read_json(tmp_path / name / "config.json")["task_settings"]["path"] == str(networks)
        (tmp_path / name / RESULT).unlink()
        assert answered("train", "--resume", tmp_path / name)["steps"] == 2
        assert answered("evaluate", tmp_path / name)["graphs"] == 1


def test_brackets_in_names(networks, tmp_path) -> None:
    out = tmp_path / "a[" / "b][red]"
    code, said, complained = convergent("data", "pore-networks", "--graphs", 2, "--out", out, "--set", "pores=20,30", width=300)
    assert code == 0, complained
    assert str(out) in said
    assert "'[/b]'" in refused("train", "[/b]")


def test_nothing_is_ignored(pores, networks, tmp_path) -> None:
    for option, value in (
        ("--steps", 5),
        ("--set", "pores=20,30"),
        ("--out", tmp_path),
        ("--model-set", "heads=2"),
        ("--target", "x"),
    ):
        assert f"{option}: expected none with --resume, which takes all settings from" in refused(
            "train", "--resume", pores, option, value
        )
    for option, value in (("--graphs", 5), ("--seed", 1), ("--set", "pores=20,30")):
        assert f"{option}: expected none with --data" in refused("evaluate", pores, "--data", networks, option, value)
    for arguments in (["--out", ""], ["--out="]):
        assert refused("train", "pore-networks", *arguments) == "convergent: --out: expected a value, but got ''"


def test_a_model_is_not_tested_on_what_it_was_trained_on(networks, tmp_path) -> None:
    run = tmp_path / "mine"
    answered("train", "folder", "--data", networks, "--target", "pressure", "--steps", 2, "--graphs", 2, "--out", run)
    assert "--seed: expected none for a model of task folder" in refused("evaluate", run, "--seed", 1)
    assert "--set: expected path or data_root for a model of task folder" in refused("evaluate", run, "--set", "validation=0.5")
    nodes = pandas.read_csv(networks / "nodes.csv")
    shutil.copytree(networks, tmp_path / "other")
    nodes.drop(columns="diameter").to_csv(tmp_path / "other" / "nodes.csv", index=False)
    said = refused("evaluate", run, "--set", f"path={tmp_path / 'other'}")
    assert "task_settings: expected columns and categories that the model was trained on, but got others" in said


def test_tables_are_not_mixed(networks) -> None:
    for ending in ("csv", "parquet"):  # a folder with both could not be read
        assert "--out: expected a new folder" in refused("data", "pore-networks", "--out", networks, "--format", ending)


class Bomb:
    def __reduce__(self) -> tuple:
        return (os.system, ("touch exploded",))


def test_a_model_file_cannot_run_code(networks, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bomb.safetensors").write_bytes(pickle.dumps(Bomb()))
    torch.save(Bomb(), tmp_path / "bomb2.safetensors")
    for name in ("bomb.safetensors", "bomb2.safetensors"):
        assert "expected a safetensors file" in refused("predict", tmp_path / name, networks, "--out", tmp_path / "out")
    assert not (tmp_path / "exploded").exists()


@settings(max_examples=200, deadline=None)
@given(pairs=st.lists(st.text(max_size=20), max_size=4))
def test_settings_are_read_or_refused(pairs) -> None:
    try:
        assert len(work.parse(pairs, "--set")) == len(pairs)
    except InputError as error:
        if not str(error).startswith("--set: expected"):
            raise


def test_settings_have_types() -> None:
    given = ["pores=50,200", "wide=true", "generator=delaunay", "rate=1e-3", "names=a,b", 'exact="7"']
    expected = {"pores": [50, 200], "wide": True, "generator": "delaunay", "rate": 1e-3, "names": ["a", "b"], "exact": "7"}
    assert work.parse(given, "--set") == expected


def start(*arguments: object, **environment: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "convergent", *map(str, arguments)]
    settings = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("signum", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_keeps_the_run(tmp_path, signum, expected) -> None:
    arguments = ["train", "pore-networks", "--validate-every", 4, "--checkpoint-every", 5, *TINY]
    process = start(*arguments, "--steps", 100_000, "--out", tmp_path / "cut")
    deadline = time.monotonic() + 120
    while not (tmp_path / "cut" / CHECKPOINT).exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signum)
    _, complained = process.communicate(timeout=120)
    assert process.returncode == expected, complained
    assert f"convergent train --resume {tmp_path / 'cut'}" in complained
    assert "Traceback" not in complained
    reached = torch.load(tmp_path / "cut" / CHECKPOINT, weights_only=True)["global_step"]
    assert reached >= 5
    assert not (tmp_path / "cut" / RESULT).exists()
    config = read_json(tmp_path / "cut" / "config.json")
    config["steps"] = reached + 6  # what is left of a hundred thousand is too long for a test
    (tmp_path / "cut" / "config.json").write_text(json.dumps(config))
    resumed = answered("train", "--resume", tmp_path / "cut")
    whole = answered(*arguments, "--steps", reached + 6, "--out", tmp_path / "whole")
    assert resumed["steps"] == whole["steps"] == reached + 6
    weights = [torch.load(tmp_path / name / CHECKPOINT, weights_only=True)["state_dict"] for name in ("cut", "whole")]
    for name, weight in weights[0].items():
        # the interrupted part ran on one thread, and sums differ by their order
        torch.testing.assert_close(weight, weights[1][name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("signum", "expected"), [(signal.SIGHUP, 129), (signal.SIGTERM, 143)])
def test_signals_have_the_exit_code_of_shells(pores, networks, tmp_path, monkeypatch, signum, expected) -> None:
    after_step, tables = Keeper.on_train_batch_end, predicting._tables

    def stop_in_a_step(*arguments) -> None:
        os.kill(os.getpid(), signum)
        after_step(*arguments)

    def stop_in_a_block(*arguments):
        os.kill(os.getpid(), signum)
        return tables(*arguments)

    monkeypatch.setattr(Keeper, "on_train_batch_end", stop_in_a_step)
    monkeypatch.setattr(predicting, "_tables", stop_in_a_block)
    run, out = tmp_path / "run", tmp_path / "out"
    code, _, complained = convergent("train", "pore-networks", "--steps", 9, "--out", run, *TINY, width=500)
    assert (code, (run / CHECKPOINT).exists()) == (expected, True)
    assert f"stopped; the run is saved. Continue it with: convergent train --resume {run}" in complained
    code, _, complained = convergent("predict", pores, networks, "--out", out, width=500)
    assert code == expected
    assert f"convergent predict {pores} {networks} --out {out} --format csv --resume" in complained
    monkeypatch.undo()
    assert answered("train", "--resume", run)["steps"] == 9
    assert answered("predict", pores, networks, "--out", out, "--resume")["graphs"] == 6


def test_a_training_that_is_stopped_before_it_begins(tmp_path, monkeypatch) -> None:
    def stop(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("convergent.training.train.Problem.of", stop)
    code, _, complained = convergent("train", "pore-networks", "--out", tmp_path / "run", *TINY)
    assert (code, complained.splitlines()[-1]) == (143, "stopped; nothing was done yet")
    assert not list(tmp_path.iterdir())


def test_two_commands_in_one_folder(pores, networks, tmp_path) -> None:
    with owned(tmp_path / "out"):
        line = refused("predict", pores, networks, "--out", tmp_path / "out")
    assert line == f"convergent: {tmp_path / 'out'}: in use by another process (pid {os.getpid()})"


def test_two_processes_agree_with_one(tmp_path) -> None:
    arguments = ["train", "value-iteration", "--model", "CGS(8)", "--steps", 6, "--graphs", 5, "--validation-graphs", 3]
    arguments += ["--set", "states=8,12", "--set", "actions=2,4", "--model-set", "hidden=16", "--model-set", "layers=1"]
    arguments = [argument if argument != "hidden=16" else "hidden=[16]" for argument in arguments]
    processes = [start(*arguments, "--out", tmp_path / str(devices), "--devices", devices, "--json") for devices in (1, 2)]
    for process in processes:
        said, complained = process.communicate(timeout=240)
        assert process.returncode == 0, said + complained
    one, two = (read_json(tmp_path / str(devices) / RESULT) for devices in (1, 2))
    assert (one["processes"], two["processes"]) == (1, 2)
    assert one["solves"]["graphs"] == two["solves"]["graphs"] == 30
    weights = [torch.load(tmp_path / str(devices) / CHECKPOINT, weights_only=True)["state_dict"] for devices in (1, 2)]
    unseen = "attention.2.bias"  # a softmax is blind to it: its gradient is rounding, which Adam blows up
    for name, weight in weights[0].items():
        torch.testing.assert_close(weight, weights[1][name], rtol=1e-4, atol=1e-2 if name.endswith(unseen) else 1e-6)
    for name, value in one["validation"].items():
        assert two["validation"][name] == pytest.approx(value, rel=1e-3, abs=1e-6)


def test_every_command_is_here() -> None:
    assert [command.callback.__name__ for command in app.registered_commands] == COMMANDS
