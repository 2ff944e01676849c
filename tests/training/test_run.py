from __future__ import annotations

import json
import pickle

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from convergent import InputError
from convergent.nn import ConvergentGraphSolver
from convergent.nn.scaler import ScaledModel
from convergent.training.run import (
    append_row,
    keep_rows,
    load_model,
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
    with pytest.raises(InputError, match="expected a model file, but there is none"):
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
    with pytest.raises(InputError, match="settings: expected those of"):
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
