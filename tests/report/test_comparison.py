from __future__ import annotations

import math
from dataclasses import replace

import pytest

from convergent.report import Score, SizeRow
from convergent.report.comparison import accuracy_table, certificate, compared, solver_table, timed

MEAN = Score(0.0, 0.0, 0.25, 0.08)
SMALL = SizeRow(
    nodes=94,
    networks=20,
    model=Score(0.993, 0.976, 0.021, 8e-4),
    line=Score(0.958, 0.84, 0.044, 5e-3),
    mean=MEAN,
    wins=20,
    largest_error=0.1,
    iterations=56,
    worst_bound=9.2e-6,
    converged=20,
    seconds=1.5e-3,
    exact_seconds=0.5e-3,
)
LARGE = replace(
    SMALL,
    nodes=1826,
    model=Score(0.983, 0.972, 0.029, 1.21e-3),
    line=Score(0.986, 0.977, 0.025, 1e-3),
    wins=7,
    worst_bound=1.0399e-5,
)


def test_it_says_which_is_better_at_which_size() -> None:
    assert compared([SMALL, LARGE]) == (
        "By R², the model is better than the straight line at 94 pores, and the straight line is better at 1,826."
    )
    assert compared([SMALL]) == "By R², the model is better than the straight line at every size."
    assert compared([LARGE]) == "By R², the model is not better than the straight line at any size."
    middle = replace(SMALL, nodes=400)
    assert "at 94 and 400 pores, and" in compared([SMALL, middle, LARGE])


def test_mean_error_is_mentioned_where_it_disagrees_with_r2() -> None:
    unclear = replace(LARGE, model=replace(LARGE.model, mean_error=0.02))
    assert compared([unclear]) == (
        "By R², the model is not better than the straight line at any size. "
        "By mean error, the model is better than the straight line at every size."
    )


def test_the_certificate_is_the_worst_one_and_rounded_up() -> None:
    assert "within 1.04 × 10⁻⁵ of the exact one" in certificate([SMALL, LARGE])
    assert "within 1.05 × 10⁻⁵ of" in certificate([replace(SMALL, worst_bound=1.0401e-5)])
    for unknown in (math.nan, math.inf):
        assert (
            certificate([replace(SMALL, worst_bound=unknown), LARGE]) == "The error of some fixed points has no finite upper bound."
        )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ((1, 1), "The exact solve is faster than the model at every size."),
        ((1, 3), "The model is faster than the exact solve only at 1,826 pores."),
        ((3, 3), "The model is faster than the exact solve at every size."),
    ],
)
def test_it_says_where_the_model_is_faster(seconds, words) -> None:
    rows = [replace(row, seconds=2, exact_seconds=exact) for row, exact in zip([SMALL, LARGE], seconds, strict=True)]
    assert timed(rows) == words


def test_tables_show_both_and_mark_the_better() -> None:
    accuracy = accuracy_table([SMALL, LARGE])
    for better in ("0.993", "0.976", "0.986", "0.977", "2.1 %", "2.5 %"):
        assert f'class="best"><span>{better}</span>' in accuracy
    assert accuracy.count('class="best"') == 6
    for words in ("0.983", "2.9 %", "25.0 %", "121 %", "7 of 20"):
        assert f"<span>{words}</span>" in accuracy
    solver = solver_table([SMALL, replace(LARGE, converged=19)])
    assert "<span>all 20</span>" in solver
    assert 'class="warn"><span>19 of 20</span>' in solver
    assert 'class="best"><span>0.5 ms</span>' in solver
