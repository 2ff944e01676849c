from __future__ import annotations

import json
import pickle
import time

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from convergent import InputError
from convergent.nn import ConvergentGraphSolver
from convergent.nn.scaler import ScaledModel
from convergent.storage.files import write_json
from convergent.training.run import (
    append_row,
    keep_rows,
    load_model,
    read_config,
    read_result,
    read_rows,
    save_model,
)

EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])


@pytest.mark.parametrize("scaled", [False, True])
def test_a_model_comes_back_as_it_was(tmp_path, scaled) -> None:
    settings = {"heads": 3, "outputs": 2}
    model = ScaledModel("ConvergentGraphSolver", settings, 2, 1) if scaled else ConvergentGraphSolver(2, 1, **settings)
    x = torch.randn(3, 2)
    if scaled:
        model.fit(x, torch.ones(3, 1), torch.randn(3, 2))
    save_model(tmp_path / "model.safetensors", model, {"targets": ["level"]})
    again, extra = load_model(tmp_path / "model.safetensors")
    assert extra == {"targets": ["level"]}
    assert not again.training
    torch.testing.assert_close(again(x, EDGES), model.eval()(x, EDGES))


class Evil:
    def __reduce__(self):
        return (open, ("pwned", "w"))


def test_a_file_that_would_run_code_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(InputError, match="expected a safetensors file"):
        load_model("model.safetensors")
    torch.save({"a": Evil()}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="expected a safetensors file"):
        load_model("other.safetensors")
    assert not (tmp_path / "pwned").exists()


def test_foreign_and_broken_files(tmp_path) -> None:
    from safetensors.torch import save

    path = tmp_path / "model.safetensors"
    with pytest.raises(InputError, match="no such file: "):
        load_model(path)
    path.write_bytes(save({"a": torch.ones(2)}))
    with pytest.raises(InputError, match="its header names none"):
        load_model(path)
    header = {
        "convergent": "1",
        "kind": "ConvergentGraphSolver",
        "settings": json.dumps({"node_features": 1, "edge_features": 1}),
        "extra": "{}",
    }
    path.write_bytes(save({"a": torch.ones(2)}, header))
    with pytest.raises(InputError, match="does not fit its weights"):
        load_model(path)
    path.write_bytes(save({"a": torch.ones(2)}, {**header, "kind": "os.system"}))
    with pytest.raises(InputError, match="kind: expected one of"):
        load_model(path)
    path.write_bytes(save({"a": torch.ones(2)}, {**header, "settings": '{"node_features": "x"}'}))
    with pytest.raises(InputError, match="node_features: expected a whole number from 0"):
        load_model(path)


@given(st.binary(max_size=400))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_garbage_is_refused(tmp_path, garbage) -> None:
    (tmp_path / "model.safetensors").write_bytes(garbage)
    with pytest.raises(InputError):
        load_model(tmp_path / "model.safetensors")


def test_a_truncated_model_is_refused(tmp_path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(path, ConvergentGraphSolver(2, 1, heads=3))
    whole = path.read_bytes()
    for cut in range(0, len(whole), max(1, len(whole) // 23)):
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError):
            load_model(path)


def test_metrics_are_cut_back_to_the_checkpoint(tmp_path) -> None:
    path = tmp_path / "metrics.csv"
    keep_rows(path, 3)
    for step in range(6):
        append_row(path, {"step": step, "loss": step / 2})
    with path.open("a") as stream:
        stream.write("6,")  # a kill in the middle of a line
    keep_rows(path, 3)
    assert list(read_rows(path)) == [{"step": step, "loss": step / 2} for step in range(4)]


def described(path, settings, tensors=None) -> None:
    """A model file with these settings in its header."""
    from safetensors.torch import save

    model = ConvergentGraphSolver(2, 1, heads=3)
    header = {"convergent": "1", "kind": "ConvergentGraphSolver", "settings": json.dumps(settings), "extra": "{}"}
    path.write_bytes(save(model.state_dict() | (tensors or {}), header))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 4}, "does not fit its weights: .*: expected shape"),
        ({"layers": 2}, "does not fit its weights"),
        ({"layers": 1000}, "does not fit its weights: settings: expected a model of at most"),
        ({"layers": 10**6}, "layers: expected a whole number from 1 to 1000, but got 1000000"),
        ({"width": 2**20, "hidden": [2**20]}, "does not fit its weights: settings: expected a model of at most"),
        ({"solver": "5"}, "solver: expected one of"),
        ({"fixed_bias": True}, "does not fit its weights: bias: expected shape .3., but got none"),
    ],
)
def test_a_header_is_compared_with_the_weights_before_anything_is_made(tmp_path, change, message) -> None:
    began = time.monotonic()
    described(tmp_path / "model.safetensors", {"node_features": 2, "edge_features": 1, "heads": 3, **change})
    with pytest.raises(InputError, match=message):
        load_model(tmp_path / "model.safetensors")
    assert time.monotonic() - began < 10


def test_weights_that_are_no_finite_numbers(tmp_path) -> None:
    settings = {"node_features": 2, "edge_features": 1, "heads": 3}
    described(tmp_path / "model.safetensors", settings, {"decoder.0.bias": torch.full((64,), float("nan"))})
    with pytest.raises(InputError, match=r"expected finite weights, but decoder\.0\.bias holds others"):
        load_model(tmp_path / "model.safetensors")
    described(tmp_path / "model.safetensors", settings, {"decoder.0.bias": torch.ones(64, dtype=torch.long)})
    with pytest.raises(InputError, match="expected floating point numbers, but got I64"):
        load_model(tmp_path / "model.safetensors")


def test_results_are_checked_and_kept_whole(tmp_path) -> None:
    config = {"task": "pore-networks", "model": "CGS(8)"}
    good = {
        "config": config,
        "steps": 3,
        "best_step": 3,
        "seconds": 1.0,
        "validation": {"mse": float("nan")},
        "solves": {},
        "more": 1,
    }
    write_json(tmp_path / "result.json", good)
    assert read_result(tmp_path / "result.json")["more"] == 1
    for change in ({"steps": "x"}, {"validation": []}, {"solves": {"graphs": "x"}}, {"config": {}}):
        write_json(tmp_path / "result.json", {**good, **change})
        with pytest.raises(InputError, match=r"result\.json: .*: expected"):
            read_result(tmp_path / "result.json")
    write_json(tmp_path / "config.json", {**config, "seed": "x"})
    with pytest.raises(InputError, match=r"config\.json: seed: expected"):
        read_config(tmp_path / "config.json")


@pytest.mark.parametrize("left", ["", "ste", "step,loss", "step,loss\n3,"])
def test_a_table_that_was_cut_off_in_its_beginning(tmp_path, left) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(left)
    keep_rows(path, 3)
    append_row(path, {"step": 4, "loss": 0.5})
    assert list(read_rows(path)) == [{"step": 4, "loss": 0.5}]


def test_a_row_that_was_cut_off_in_its_last_number(tmp_path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n1,0.25\n2,0.1")
    keep_rows(path, 2)
    assert list(read_rows(path)) == [{"step": 1, "loss": 0.25}]
