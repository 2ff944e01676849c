from __future__ import annotations

import pytest
import torch

from convergent.experiments import runtime
from convergent.experiments.runner import Plan, run
from convergent.experiments.runtime import INVERSE, ITERATION, METHODS, SETTINGS, Runtime, RuntimeGPU, make_case
from convergent.training.run import read_json


def test_successors_are_distinct_and_never_the_state_itself():
    graph = make_case(7, SETTINGS, "cpu").graph
    pairs = torch.stack([graph.row, graph.column], 1)
    assert len(pairs.unique(dim=0)) == len(pairs) == 7 * 5
    assert (graph.row != graph.column).all()
    assert (graph.out_degree == 5).all()


@pytest.mark.parametrize("method", METHODS)
def test_all_methods_find_the_same_fixed_point(method):
    case = make_case(150, SETTINGS, "cpu")
    matrix, right = runtime.dense(case)
    exact = torch.linalg.solve(torch.eye(150).double() - matrix.double(), right.double()).squeeze(-1).t()
    assert (METHODS[method](case) - exact).abs().max() < 1e-5


def test_a_method_goes_on_until_it_is_too_slow():
    settings = SETTINGS | {"method": "Auto", "device": "cpu", "sizes": [20, 40, 80], "repeats": 4, "most_seconds": -1.0}
    (case,) = runtime.measure(settings, "cpu")["cases"]
    assert (case["states"], case["stopped"], len(case["seconds"])) == (20, "time", 1)
    cases = runtime.measure(settings | {"most_seconds": 20.0}, "cpu")["cases"]
    assert [(case["states"], len(case["seconds"])) for case in cases] == [(20, 4), (40, 4), (80, 4)]
    assert all(case["error"] < 1e-5 for case in cases)


def failing(error: Exception):
    def method(case):
        if len(case.bias) > 20:
            raise error
        return case.bias

    return method


def test_a_method_that_runs_out_of_memory_has_stopped_there(monkeypatch):
    settings = SETTINGS | {"method": "Auto", "device": "cpu", "sizes": [20, 40, 80], "repeats": 3}
    monkeypatch.setitem(METHODS, "Auto", failing(RuntimeError("can't allocate memory")))
    assert runtime.measure(settings, "cpu")["cases"][-1] == {"states": 40, "stopped": "memory"}
    monkeypatch.setitem(METHODS, "Auto", failing(RuntimeError("a mistake")))
    with pytest.raises(RuntimeError, match="a mistake"):
        runtime.measure(settings, "cpu")


def test_the_quick_budget_runs_and_names_its_own_device(tmp_path):
    (path,) = run([Runtime(quick=True)], Plan(tmp_path, device="cuda:7"))  # that of the runner is for other experiments
    report = read_json(path)
    assert [machine["device"] for machine in report["machines"]] == ["cpu"]
    table = report["table"]
    assert table["sizes"] == [100, 200]
    assert list(table["rows"]) == list(METHODS)
    assert table["rows"]["Auto"]["repeats"] == [3, 3]
    assert len(report["statements"]) == 5


def test_a_gpu_has_an_experiment_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert RuntimeGPU().missing() == "there is no CUDA device"
    assert Runtime().missing() is None
    assert {job.settings["device"] for job in RuntimeGPU().jobs()} == {"cuda"}
    assert not {job.key for job in Runtime().jobs()} & {job.key for job in RuntimeGPU().jobs()}


def row(seconds, memory, stopped=None):
    return {"median": seconds, "memory": memory, "stopped": stopped}


def made_up() -> dict:
    """Inversion is faster up to 4,000 states and then out of memory."""
    gibibyte = 2**30
    return {
        "sizes": [1_000, 4_000, 10_000],
        "most_gibibytes": 24.0,
        "rows": {
            INVERSE: row([0.01, 0.5, None], [gibibyte, 16 * gibibyte, None], {"by": "memory", "at": 10_000}),
            ITERATION: row([0.1, 0.6, None], [gibibyte // 2, 8 * gibibyte, None], {"by": "time", "at": 10_000}),
            "Auto": row([0.001, 0.002, 0.003], [1, 2, 3]),
        },
    }


def test_statements_on_a_table_as_the_paper_tells_it():
    holds = [statement.holds for statement in RuntimeGPU().statements(made_up())]
    assert holds == [True, True, True, True, True, False]  # 4,000 states did fit


def test_statements_the_other_way_round():
    table = made_up()
    rows = table["rows"]
    rows[INVERSE], rows[ITERATION] = rows[ITERATION], rows[INVERSE]
    rows["Auto"]["median"] = [1.0, 2.0, None]
    holds = [statement.holds for statement in RuntimeGPU().statements(table)]
    assert holds == [False, False, False, False, False, False]
    rows[INVERSE] |= row([0.01, None, None], [1, None, None], {"by": "memory", "at": 4_000})
    assert RuntimeGPU().statements(table)[-1].holds


def test_small_tables_tell_little():
    table = made_up()
    table["sizes"] = table["sizes"][:1]
    for each in table["rows"].values():
        each |= {"median": each["median"][:1], "memory": [None], "stopped": None}
    assert [statement.holds for statement in RuntimeGPU().statements(table)] == [None, None, None, True, None, None]


@pytest.mark.cuda
def test_on_a_gpu(tmp_path):
    report = read_json(run([RuntimeGPU(quick=True)], Plan(tmp_path))[0])
    assert report["machines"][0]["device"] == "cuda"
    assert all(min(each["memory"]) > 0 for each in report["table"]["rows"].values())
