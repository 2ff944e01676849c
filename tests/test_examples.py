"""Examples run, what they print holds, and every block of Python in the pages runs, in order."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from convergent import Auto, Graph, Implicit, Solution, Status, solve

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
WITH_CODE = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]


def run(*arguments: str) -> str:
    """A script in a process of its own, with warnings as errors; what it printed."""
    # torch still scripts, which is deprecated, when PyTorch Geometric, forward mode or the compiler come in
    strict = {"PYTHONWARNINGS": "error,ignore::DeprecationWarning", "COLUMNS": "100"}
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **strict}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def numbers(pattern: str, text: str) -> list[float]:
    found = re.search(pattern, text)
    assert found, f"{pattern} not in\n{text}"
    return [float(group) for group in found.groups()]


NUMBER = r"([-+.\de]+)"


def test_gradients() -> None:
    printed = run("examples/gradients.py")
    losses = [float(loss) for loss in re.findall(rf"loss {NUMBER}", printed)]
    assert losses[-1] < 1e-4 * losses[0]
    assert numbers(rf"forward mode against finite differences: {NUMBER}", printed)[0] < 1e-6
    curvature, finite = numbers(rf"curvature along a direction: {NUMBER}, by finite differences {NUMBER}", printed)
    assert curvature == pytest.approx(finite, rel=1e-3)


def test_pagerank() -> None:
    certified, true = numbers(rf"certified {NUMBER}, true {NUMBER}", run("examples/pagerank.py"))
    assert true <= certified <= 1e-9


def test_custom_map() -> None:
    gradient, finite = numbers(rf"gradient {NUMBER}, by finite differences {NUMBER}", run("examples/custom_map.py"))
    assert gradient == pytest.approx(finite, rel=1e-5)


@pytest.mark.parametrize("certify", ["auto", "plain", "tight"])
def test_custom_map_below_what_its_dtype_can_hold(certify) -> None:
    """A map without a sharper certificate reports the plain one; its adjoint has the discount that was computed with."""
    kind = runpy.run_path(str(ROOT / "examples/custom_map.py"))["MaxPlusMap"]
    graph = Graph(torch.tensor([[0, 0, 1], [1, 1, 0]]), num_nodes=2)
    reward, bias = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True), torch.zeros(2, 1)
    adjoints: list[Solution] = []
    fixed = kind(graph, reward, bias, discount=0.9452918630304616)
    solution = solve(fixed, Auto(tol=1e-30, throw=False, certify=certify), gradient=Implicit(on_adjoint=adjoints.append))
    assert solution.status.item() == Status.PRECISION
    g = fixed.discount
    exact = torch.tensor([[(2 + 3 * g) / (1 - g * g)], [(3 + 2 * g) / (1 - g * g)]], dtype=torch.float64)
    assert (solution.value - exact).abs().max() <= solution.error_bound.max() < 1e-4
    solution.value.sum().backward()
    assert reward.grad is not None
    found = reward.grad.double()
    off = abs(float(found.sum()) - 2 / (1 - g))  # each node of the cycle counts 1 + g + g^2 + ...
    assert off <= adjoints[0].error_bound.item() + 1e-5


def test_pyg_layer() -> None:
    printed = run("examples/pyg_layer.py", "--steps", "60", "--size", "16")
    local, convergent = (float(share) for share in re.findall(r"(\d+)%", printed))
    assert convergent > local
    assert convergent > 90


def test_own_data(tmp_path: Path) -> None:
    printed = run("examples/own_data.py", "--out", str(tmp_path), "--circuits", "40", "--steps", "200")
    larger, certified, of = numbers(rf"three times as large: mean error {NUMBER} V, (\d+) of (\d+) certified", printed)
    (mean,) = numbers(rf"always saying the mean: mean error {NUMBER}", printed)
    assert larger < 0.4 * mean
    assert certified == of == 10


def test_pressure(tmp_path: Path) -> None:
    printed = run("examples/pressure.py", "--pores", "800", "--seed", "3", "--out", str(tmp_path))
    for name in ("pressure.png", "sensitivity.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 2

    def value(label: str) -> list[float]:
        cell = rf"{re.escape(label)}\s*│\s*{NUMBER}"
        return numbers(cell, printed)

    assert value("certified bound on the error (tight)")[0] <= 1e-6
    assert value("largest difference from scipy at 1e-13") <= value("certified: tight bound + leak")
    assert value("sum of k dQ/dk over Q, which should be 1")[0] == pytest.approx(1, abs=1e-6)
    pairs = re.findall(rf"dQ/dk, by finite differences\s*│\s*{NUMBER}, {NUMBER}", printed)
    assert len(pairs) == 3
    for adjoint, finite in pairs:
        assert float(adjoint) == pytest.approx(float(finite), rel=1e-3)


def test_pressure_refuses_too_few_pores() -> None:
    command = [sys.executable, "examples/pressure.py", "--pores", "3"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", timeout=300)
    assert done.returncode == 2
    assert "--pores: expected 50 or more, but got 3" in done.stderr


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_page(page: Path) -> None:
    """One process and one namespace for each page; a failure names the line of the page."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"```python\n(.*?)```", text, re.DOTALL)
    blocks = ["\n" * text[: block.start(1)].count("\n") + block[1] for block in found]
    run("-c", f"names = {{}}\nfor block in {blocks!r}: exec(compile(block, {page.name!r}, 'exec'), names)")


def test_pages_stand_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES:
        assert f": {page.relative_to(ROOT / 'docs')}" in menu
