from __future__ import annotations

import json

import pytest

from convergent import InputError
from convergent.cli import demo
from convergent.cli.demo import PAGE, RESULT, SIZES, run


def test_a_short_demonstration(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(demo, "NETWORKS", 2)
    monkeypatch.setattr(demo, "SIZES", (30, 60))
    run(tmp_path / "demo", steps=4, seed=0, device="cpu")
    found = json.loads((tmp_path / "demo" / RESULT).read_text())
    assert [test["networks"] for test in found["tests"]] == [2, 2]
    for test in found["tests"]:
        assert test["converged"] == 2
        assert 0 < test["straight_line_mse"] < 0.1
        assert test["mse"] > 0
    page = (tmp_path / "demo" / PAGE).read_text(encoding="utf-8")
    assert "The pressure in a porous rock" in page
    assert f"look at {tmp_path / 'demo' / PAGE}" in capsys.readouterr().out
    with pytest.raises(InputError, match="--out: expected a new folder"):
        run(tmp_path / "demo", steps=4, seed=0, device="cpu")


def test_the_largest_networks_are_beyond_training() -> None:
    assert max(SIZES) >= 4 * 200
