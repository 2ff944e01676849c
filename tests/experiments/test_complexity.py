from __future__ import annotations

import pytest
import torch

from convergent.experiments.complexity import SETTINGS, Complexity, Kept, measure
from convergent.experiments.runner import Plan, run
from convergent.training.run import read_json

SMALL = SETTINGS | {"states": 50, "heads": 2}
STATE = 50 * 2 * 8  # bytes


def saved(gradient: str, tol: float) -> tuple[int, int]:
    result = measure(SMALL | {"gradient": gradient, "tol": tol}, "cpu")
    return result["iterations"], result["saved"]


def test_unrolled_gradients_save_a_state_per_iteration():
    (few, little), (many, much) = saved("Unrolled", 1.0), saved("Unrolled", 1e-6)
    assert many > few
    assert much - little == STATE * (many - few)


def test_implicit_gradients_save_the_same_whatever_the_iterations():
    (few, little), (many, much) = saved("Implicit", 1.0), saved("Implicit", 1e-6)
    assert many > few
    assert much == little


def test_a_storage_counts_once():
    kept, values = Kept(), torch.zeros(10)
    for tensor in (values, values[3:], torch.zeros(4)):
        assert kept.take(tensor) is tensor
    assert kept.total == 56


def test_the_quick_budget_runs(tmp_path):
    report = read_json(run([Complexity(quick=True)], Plan(tmp_path))[0])
    rows = report["table"]["rows"]
    assert rows["Implicit"]["iterations"] == rows["Unrolled"]["iterations"]
    assert [statement["holds"] for statement in report["statements"][:2]] == [True, True]
    assert report["table"]["devices"] == ["cpu"]


def made_up(implicit: list[int], unrolled: list[int], peak: list[int | None]) -> dict:
    steps = [10, 20, 40]
    rows = {"Implicit": {"saved": implicit, "peak": peak}, "Unrolled": {"saved": unrolled, "peak": peak}}
    return {"states": 1000, "heads": 1, "rows": {name: row | {"iterations": steps} for name, row in rows.items()}}


@pytest.mark.parametrize(
    ("table", "holds"),
    [
        (made_up([5, 5, 5], [10, 20, 40], [2_000_000] * 3), [True, True, True]),
        (made_up([5, 5, 6], [10, 20, 80], [2_000_000, 2_100_000, 2_300_000]), [False, False, False]),
        (made_up([5, 5, 5], [7, 7, 7], [None] * 3), [True, False, None]),
        (made_up([5, 5, 5], [7, 7, 7], [5000, 0, 100]), [True, False, None]),  # kilobytes are not seen
    ],
)
def test_statements(table, holds):
    assert [statement.holds for statement in Complexity().statements(table)] == holds


@pytest.mark.cuda
def test_on_a_gpu():
    few, many = (measure(SETTINGS | {"gradient": "Implicit", "tol": tol}, "cuda") for tol in (1.0, 1e-6))
    assert few["device"] == "cuda"
    assert few["saved"] == many["saved"]
    assert many["peak"] < 1.5 * few["peak"]
