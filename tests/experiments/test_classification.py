"""Classification of graphs, at a budget of seconds."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from convergent.experiments import runner
from convergent.experiments.classification import Classification, verdicts
from convergent.experiments.classification_tuning import Divisions, Tuning
from convergent.experiments.on_sets import CHOSEN, EPOCHS, OnSets, accuracy, best
from convergent.experiments.printed import CLASSIFICATION
from convergent.experiments.runner import Plan
from convergent.tasks.classification import SETS
from convergent.training.run import read_json

ROOT = Path(os.environ.get("CONVERGENT_TUDATASETS") or Path(__file__).resolve().parents[3] / "shared" / "tudatasets")
there = pytest.mark.skipif(not ROOT.is_dir(), reason="no raw TU files; CONVERGENT_TUDATASETS=folder names them")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_without_data_it_says_so_in_one_line(tmp_path: Path) -> None:
    reason = Classification(quick=True).missing()
    assert reason == "a folder with the raw TU sets MUTAG, PTC as NAME/raw/*.txt is needed, and no folder was named"
    empty = Classification(data=tmp_path).missing()
    assert empty is not None
    assert empty.endswith(f"{tmp_path} lacks them")
    assert "\n" not in empty


def test_the_full_budget_is_the_papers() -> None:
    full = Classification()
    assert (full.sets, full.folds) == (SETS, 10)
    assert set(CHOSEN) == set(EPOCHS) == set(SETS)
    assert EPOCHS["NCI1"] == 100
    assert {model for model in CLASSIFICATION["A"] if model.startswith("CGS")} <= set(full.models)
    assert len({job.key for job in full.jobs()}) == 9 * 6 + 6


def test_where_data_are_is_no_part_of_a_job(tmp_path: Path) -> None:
    assert [job.key for job in Classification(data=tmp_path).jobs()] == [job.key for job in Classification().jobs()]


def test_the_two_protocols() -> None:
    found = verdicts(np.array([[50.0, 90, 60], [80, 60, 70]]))
    assert found == {"A": {"accuracy": [90, 60], "at": [2, 2]}, "B": {"accuracy": [90, 80], "at": [2, 1]}}
    assert [accuracy(found[protocol]) for protocol in "AB"] == [[75, 15], [85, 5]]


def test_the_best_of_cgs() -> None:
    assert best({"CGS(4)": [[80.0, 2.0]], "CGS(8)": [[81.0, 9.0]], "GIN": [[99.0, 1.0]]}, 0) == ("CGS(8)", [81.0, 9.0])


@there
def test_both_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Classification, "epochs", lambda *_: 2)
    monkeypatch.setattr(Classification, "models", ("CGS(1)", "CGS(4)", "IGNN", "GIN", "GraphNorm", "DGCNN"))
    experiment = Classification(quick=True, data=ROOT)
    assert experiment.missing() is None
    (path,) = runner.run([experiment], Plan(tmp_path / "out"))
    report = read_json(path)
    for protocol in ("A", "B"):
        part = report["table"][protocol]
        assert part["columns"] == ["MUTAG", "PTC"]
        assert set(part["rows"]) == set(experiment.models)
        assert all(30 <= mean <= 100 and std >= 0 for row in part["rows"].values() for mean, std in row)
        assert all(
            often[0] >= seldom[0]
            for name in part["rows"]
            for often, seldom in zip(part["rows"][name], part["by_epoch"][name], strict=True)
        )
        assert all(len(folds["accuracy"]) == 2 for row in part["folds"].values() for folds in row)
        assert part["printed"]["CGS(4)"] == [CLASSIFICATION[protocol]["CGS(4)"][SETS.index(name)] for name in part["columns"]]
    assert len(report["statements"]) == 2 * 2 * 3 + 2
    assert all(99 <= report["table"]["ceiling"][name][part][0] <= 100 for name in ("MUTAG", "PTC") for part in ("train", "test"))
    assert {statement["holds"] for statement in report["statements"] if "IGNN" in statement["text"]} <= {True, False}
    assert str(ROOT) not in path.read_text(encoding="utf-8")


def test_the_settings_that_were_chosen_are_among_those_tried() -> None:
    tuning = Tuning()
    assert len(tuning.candidates) <= 10
    for name in tuning.sets:
        assert CHOSEN[name] in tuning.candidates.values()
        assert {job.key for job in Classification().jobs()} & {job.key for job in tuning.jobs() if job.settings["set"] == name}


@there
def test_settings_and_folds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OnSets, "epochs", lambda *_: 1)
    monkeypatch.setattr(Tuning, "candidates", dict(list(Tuning.candidates.items())[:2]))
    paths = runner.run([Tuning(True, ROOT), Divisions(True, ROOT)], Plan(tmp_path / "out"))
    settings, divisions = (read_json(path)["table"] for path in paths)
    assert settings["columns"] == ["MUTAG, A", "MUTAG, B"]
    assert list(settings["chosen"]) == ["MUTAG"]
    assert set(divisions["rows"]) == {"seed 0", "seed 1"}
    assert divisions["rows"]["seed 0"] != divisions["rows"]["seed 1"]
    assert all(a[0] <= b[0] for table in (settings, divisions) for a, b in table["rows"].values())
