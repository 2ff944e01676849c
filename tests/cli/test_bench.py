"""The command ``bench``: it finds the benchmarks of the checkout, or says in one line why it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from benchmarks import command
from typer.testing import CliRunner

from convergent import InputError
from convergent.cli import bench
from convergent.cli.app import app

ROOT = Path(__file__).parents[2]


def refused(*arguments: str) -> str:
    """The message with which the command refuses; how ``main`` prints it is tested with all commands."""
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert isinstance(result.exception, InputError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


@pytest.mark.parametrize("module", ["convergent", "benchmarks"])
def test_a_benchmark_end_to_end(module: str, tmp_path: Path) -> None:
    arguments = ["cuda", "--device", "cpu", "--quick", "--parts", "growth", "--seed", "3", "--threads", "1", "--out", str(tmp_path)]
    start = [sys.executable, "-m", module, *(["bench"] if module == "convergent" else [])]
    settings = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    where = tmp_path if module == "convergent" else ROOT  # the command finds the benchmarks from anywhere
    done = subprocess.run([*start, *arguments], cwd=where, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "cuda: targets" in done.stdout
    report = json.loads((tmp_path / "cuda.json").read_text())
    assert (report["seed"], report["settings"]["parts"], report["machine"]["torch_threads"]) == (3, ["growth"], 1)


def test_wrong_words() -> None:
    assert "NAME: expected one of w1, step" in refused("w2")
    assert "--parts: expected some of iteration, layer" in refused("cuda", "--device", "cpu", "--quick", "--parts", "growth,engine")
    assert "--parts: expected none with w1, but got 'growth'" in refused("w1", "--parts", "growth")
    assert "--device: expected cuda with cuda, or --quick, but got 'cpu'" in refused("cuda", "--device", "cpu")
    assert "--device: expected cpu or cuda, but got 'abacus'" in refused("--device", "abacus")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device() -> None:
    assert "--device: expected cpu, as there is no CUDA device, but got 'cuda'" in refused("--device", "cuda")
    assert "as there is no CUDA device, but got 'cuda'" in refused("cuda")


def test_the_device_chooses_the_benchmarks() -> None:
    assert tuple(command.chosen([], "cuda", False, [])) == command.ON_A_DEVICE
    assert tuple(command.chosen([], "cpu", False, [])) == tuple(command.chosen([], None, False, [])) == command.NAMES
    with pytest.raises(InputError, match="--device: expected cpu with w1, but got 'cuda'"):
        command.chosen(["w1"], "cuda", False, [])


def test_only_in_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench.checkout(bench.PACKAGE) == ROOT
    package = tmp_path / "site-packages" / "convergent"
    monkeypatch.setattr(bench, "PACKAGE", package)
    assert refused() == f"bench: expected a checkout of the repository, installed with pip install -e, but got {package}"
