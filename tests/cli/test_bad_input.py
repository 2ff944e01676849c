"""Whatever comes in, the command answers with one line and leaves everything as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from bad_input import CASES, drawn, playground, violation


@pytest.fixture(scope="module")
def ground(tmp_path_factory) -> Path:
    return playground(tmp_path_factory.mktemp("playground"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_refused_in_one_line(case, ground, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert violation(case, ground, tmp_path / "scratch") is None
    assert [path.name for path in tmp_path.iterdir()] == ["scratch"]


@pytest.mark.parametrize("case", tuple(drawn(seed=0, count=60)), ids=str)
def test_damage_by_chance_is_refused_or_harmless(case, ground, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert violation(case, ground, tmp_path / "scratch") is None
    assert [path.name for path in tmp_path.iterdir()] == ["scratch"]
