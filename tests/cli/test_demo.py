from __future__ import annotations

import json
import re

import pytest
import torch
from typer.testing import CliRunner

from browser import chromium, open_page
from convergent import InputError
from convergent.cli import demo, work
from convergent.cli.app import app
from convergent.cli.demo import PAGE, RESULT, SIZES, means, r2, run, score
from convergent.storage.lock import InUse, owned
from convergent.tasks.batch import GraphBatch


def batch_of(*answers: list[float]) -> GraphBatch:
    """One network for each list; the first and the last pore of each have a given pressure."""
    sizes = [len(answer) for answer in answers]
    x = torch.zeros(sum(sizes), 7)
    for start, size in zip(torch.tensor([0, *sizes]).cumsum(0)[:-1].tolist(), sizes, strict=True):
        x[[start, start + size - 1], 5] = 1
    y = torch.tensor([value for answer in answers for value in answer]).unsqueeze(1)
    owner = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return GraphBatch(x, torch.zeros(2, 0, dtype=torch.long), torch.zeros(0, 3), y, owner, len(sizes))


def test_r2_is_computed_by_network_against_its_own_mean() -> None:
    batch = batch_of([0.0, 0.0, 1.0, 1.0], [10.0, 12.0])
    predicted = torch.tensor([[0.5], [0.0], [1.0], [1.0], [10.0], [11.0]])
    assert r2(predicted, batch) == pytest.approx(((1 - 0.25 / 1.0) + (1 - 1.0 / 2.0)) / 2)
    assert r2(batch.y, batch) == 1
    assert r2(means(batch), batch) == pytest.approx(0)


def test_a_score_tells_inner_pores_from_those_with_a_given_pressure() -> None:
    batch = batch_of([0.0, 0.25, 0.75, 1.0])
    found = score(torch.tensor([[0.0], [0.5], [0.5], [1.0]]), batch)
    assert found.inner_r2 == pytest.approx(0)
    assert found.r2 == pytest.approx(1 - 0.125 / 0.625)
    assert found.mean_error == pytest.approx(0.125)
    assert found.mse == pytest.approx(0.125 / 4)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A short demonstration, and what it printed."""
    out = tmp_path_factory.mktemp("finished") / "demo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "NETWORKS", 2)
        patch.setattr(demo, "SIZES", (30, 60))
        with work.out.capture() as printed:
            run(out, steps=4, seed=0, device="cpu")
    return out, printed.get()


def test_the_results_of_a_short_demonstration(finished) -> None:
    out, _ = finished
    found = json.loads((out / RESULT).read_text())
    assert [test["networks"] for test in found["tests"]] == [2, 2]
    for test in found["tests"]:
        assert test["converged"] == 2
        assert test["mse"] > 0
        line, mean = test["baselines"]["straight_line"], test["baselines"]["mean"]
        assert 0 < test["straight_line_mse"] == line["mse"] < mean["mse"]
        assert test["r2"] < 1
        assert 0.5 < line["r2"] < 1
        assert mean["r2"] == pytest.approx(0, abs=1e-6)
        assert 0 <= test["networks_better_than_straight_line"] <= 2
        assert test["median_seconds_one_network"] > 0
        assert test["median_seconds_exact_solve"] > 0


def test_what_it_prints_fits_and_leads_with_r2(finished) -> None:
    out, printed = finished
    *lines, last = printed.rstrip().splitlines()
    assert max(map(len, lines)) <= 80
    head = next(line for line in lines if "pores" in line and "R²" in line)
    assert re.findall(r"[\w²,]+(?: \w+)?", head)[:3] == ["pores", "R²", "R², line"]
    assert "By R², the" in printed
    assert last == f"page: {out / PAGE}"


def test_a_finished_demonstration_is_not_overwritten(finished) -> None:
    out, _ = finished
    with pytest.raises(InputError, match=r"--out: expected a folder without a finished demonstration, but got .*index\.html"):
        run(out, steps=4, seed=0, device="cpu")


@pytest.mark.skipif(chromium() is None, reason="no Chromium is installed")
def test_the_page_in_a_browser(finished) -> None:
    out, _ = finished
    shown = "['points', 'network', 'curves'].map((name) => document.querySelectorAll(`#${name} .main-svg`).length > 0)"
    visit = open_page(out / PAGE, ask=shown)
    assert visit.console == []
    assert visit.answer == [True, True, True]
    assert "of a network it has never seen, from geometry alone" in visit.dom


def test_the_largest_networks_are_beyond_training() -> None:
    assert max(SIZES) >= 4 * 200


def test_one_process_at_a_time(tmp_path) -> None:
    with owned(tmp_path / "demo"):
        result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo")])
    assert isinstance(result.exception, InUse)
    assert not (tmp_path / "demo").exists()
