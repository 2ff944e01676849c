"""The command ``bench``: it finds the benchmarks of the checkout or says in one line why it does not, and writes their page."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import command
from benchmarks.page import SECTIONS, write_page
from benchmarks.page.reports import NAMES
from typer.testing import CliRunner

from convergent import InputError
from convergent.cli import bench
from convergent.cli.app import app

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "bench"
PICTURES = ("gpu-growth", "gpu-iteration", "growth", "layer", "near-one")


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
    assert tuple(command.chosen([], "cuda", False, [])) == command.ON_A_DEVICE + command.ON_BOTH
    assert tuple(command.chosen([], "cpu", False, [])) == tuple(command.chosen([], None, False, [])) == command.NAMES
    with pytest.raises(InputError, match="--device: expected cpu with w1, but got 'cuda'"):
        command.chosen(["w1"], "cuda", False, [])


def test_only_in_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench.checkout(bench.PACKAGE) == ROOT
    package = tmp_path / "site-packages" / "convergent"
    monkeypatch.setattr(bench, "PACKAGE", package)
    assert refused() == f"bench: expected a checkout of the repository, installed with pip install -e, but got {package}"


# --- the page ---


def page_of(folder: Path, page: Path) -> str:
    """The text that the command makes of the files in a folder; no benchmark is run."""
    result = CliRunner().invoke(app, ["bench", "--out", str(folder), "--page", str(page)])
    assert result.exit_code == 0, result.output
    return page.read_text()


def section(text: str, title: str) -> str:
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def changed(folder: Path, name: str, change: Callable[[dict[str, Any]], object]) -> Path:
    """All results of the repository, one of them changed."""
    shutil.copytree(RESULTS, folder)
    report = json.loads((folder / f"{name}.json").read_text())
    change(report)
    (folder / f"{name}.json").write_text(json.dumps(report))
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("page")
    return folder, page_of(RESULTS, folder / "benchmarks.md")


def test_the_page_in_the_repository_is_made_from_the_results_in_it(whole: tuple[Path, str]) -> None:
    assert (ROOT / "docs" / "benchmarks.md").read_text() == whole[1], "run: convergent bench --page docs/benchmarks.md"


def test_every_target_of_every_file_is_on_the_page(whole: tuple[Path, str]) -> None:
    seen = 0
    for each in SECTIONS:
        path = RESULTS / f"{each.name}.json"
        targets = json.loads(path.read_text()).get("targets", ()) if path.exists() else ()
        rows = section(whole[1], each.title).splitlines()
        for target in targets:
            (row,) = [row for row in rows if row.startswith(f"| {target['name']} | {target['wanted']} | ")]
            assert ("**✗ missed**" in row) == (target["met"] is False)
        met = sum(target["met"] is True for target in targets)
        assert not targets or f"**Targets: {met} of {len(targets)} met**" in rows
        seen += len(targets)
    assert seen >= 62


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_drawn_and_shown(whole: tuple[Path, str], name: str) -> None:
    from matplotlib.image import imread

    image = imread(whole[0] / "benchmarks" / f"{name}.png")
    assert len(np.unique(image.reshape(-1, image.shape[2]), axis=0)) > 10  # not an empty sheet
    assert f"](benchmarks/{name}.png)" in whole[1]


def test_no_picture_is_drawn_that_is_not_shown(whole: tuple[Path, str]) -> None:
    assert sorted(path.stem for path in (whole[0] / "benchmarks").iterdir()) == sorted(PICTURES)


def slower(report: dict[str, Any]) -> None:
    report["cases"][0]["timings"]["index_add"]["median"] = 1000 * report["cases"][0]["timings"]["convergent"]["median"]


FASTER = "torchsparsegradutils BiCGStab"  # than Auto, in one case


def faster_case(report: dict[str, Any]) -> dict[str, Any]:
    return next(case for case in report["cases"] if case["name"] == "random, gamma 0.99, 1 heads")


def faster() -> str:
    report = json.loads((ROOT / "results" / "bench" / "near_one.json").read_text())
    return f"{faster_case(report)['ratios'][FASTER]['median']:.2f}"


def not_reached(report: dict[str, Any]) -> None:
    faster_case(report)["details"][FASTER]["reached"] = False


def missed(report: dict[str, Any]) -> None:
    report["targets"][0].update(value=0.125, met=False)


def less_of_the_copy(report: dict[str, Any]) -> None:
    report["cases"][0]["measured"].update(fraction_of_copy=0.123, fraction_of_copy_product=0.234)


def failed(report: dict[str, Any]) -> None:
    report["settings"]["failed"] = {"layer": "RuntimeError: out of memory"}


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("w1", slower, "| gather + `index_add`, our stopping rule | 1,000 ("),
        ("w1", missed, "| >= 3000 | 0.125 | **✗ missed** |"),
        ("step", missed, "**Targets: 0 of 1 met**"),
        ("near_one", not_reached, f"| {faster()} ✗ |"),
        ("cuda", less_of_the_copy, "| fraction of the copy (without residual) | 0.12 (0.23) |"),
        ("cuda", failed, "- layer: RuntimeError: out of memory"),
        ("growth", lambda report: report.update(date="2031-02-03T04:05:06+00:00"), "measured 2031-02-03 at commit"),
    ],
)
def test_what_changes_in_a_file_changes_on_the_page(
    whole: tuple[Path, str], tmp_path: Path, name: str, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    assert words not in whole[1]
    assert words in page_of(changed(tmp_path / "results", name, change), tmp_path / "benchmarks.md")


def test_who_does_not_reach_the_error_is_not_faster_than_auto(whole: tuple[Path, str], tmp_path: Path) -> None:
    named = f"random, gamma 0.99, 1 head: {FASTER} ({faster()})"
    assert named in whole[1]
    assert named not in page_of(changed(tmp_path / "results", "near_one", not_reached), tmp_path / "benchmarks.md")


def test_a_file_that_is_not_there_is_said_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    text = page_of(tmp_path / "results", tmp_path / "benchmarks.md")
    for each in SECTIONS:
        assert f"There is no `{each.name}.json`." in section(text, each.title)
        assert f"| `{each.name}.json` | not measured | – | – | – |" in text
    assert "Targets met" not in text
    assert not (tmp_path / "benchmarks").exists()


@pytest.mark.parametrize("name", NAMES)
def test_small_sizes_are_marked_and_do_not_count(tmp_path: Path, name: str) -> None:
    if not (RESULTS / f"{name}.json").exists():
        pytest.skip(f"there is no {name}.json")
    folder = changed(tmp_path / "results", name, lambda report: report.update(quick=True))
    text = page_of(folder, tmp_path / "benchmarks.md")
    title = next(each.title for each in SECTIONS if each.name == name)
    assert f"`{name}.json` was made with `--quick`: small sizes, for the form only." in section(text, title)
    assert text.count("| small sizes, for the form only |") == 1
    counted = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    full = [report for report in counted if not report.get("quick", True) and report["settings"].get("device") != "cuda"]
    assert f"of {sum(len(report['targets']) for report in full)} on the CPU" in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "expected JSON, but could not read it"),
        ("[]", "expected the report to be a JSON object, but got list"),
        ("{}", "expected the report to be what a benchmark writes, but it has no 'benchmark', 'cases'"),
    ],
)
@pytest.mark.parametrize("name", ["w1", "cuda"])
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / f"{name}.json").write_text(content)
    message = refused("--out", str(tmp_path), "--page", str(tmp_path / "page.md"))
    assert message.startswith(f"{tmp_path / f'{name}.json'}: {words}")
    assert not (tmp_path / "page.md").exists()


def test_a_case_without_its_parts_is_named(tmp_path: Path) -> None:
    folder = changed(tmp_path / "results", "w1", lambda report: report["cases"][0].pop("timings"))
    message = refused("--out", str(folder), "--page", str(tmp_path / "page.md"))
    assert message.endswith("w1.json: expected cases[0] to be what a benchmark writes, but it has no 'timings'")


DEEP = [  # file, where, what is put there (None: it is taken away), and the words of the error
    ("w1", "cases 0 timings convergent median", "fast", "cases[0].timings['convergent'].median: expected a number, but got 'fast'"),
    ("w1", "cases 1 timings convergent repeats", None, "but it has no 'repeats'"),
    ("cuda", "cases 3 timings", [], "cases[3].timings: expected a JSON object, but got list"),
    ("sweep", "targets 2 wanted", 15, "targets[2].wanted: expected a text, but got int"),
    ("sweep", "targets 2 met", "yes", "targets[2].met: expected true, false or null, but got 'yes'"),
    ("sweep", "cases 4 settings nodes", None, "expected what a benchmark writes, but found no 'nodes'"),
    ("growth", "machine", "mine", "machine: expected a JSON object, but got str"),
    ("growth", "machine versions", True, "found a value that cannot be shown ('bool' object has no attribute 'items')"),
    ("near_one", "cases 0 name", 3, "cases[0].name: expected a text, but got int"),
    ("certificate", "cases 0 measured steps", None, "expected what a benchmark writes, but found no 'steps'"),
    ("certificate", "cases 0 measured network temperature", {}, "found a value that cannot be shown"),
    ("cuda_tests", "memcheck errors", [{}], "found a value that cannot be shown"),
]


@pytest.mark.parametrize(("name", "where", "value", "words"), DEEP, ids=[f"{name} {where}" for name, where, *_ in DEEP])
def test_a_value_deep_in_a_file_that_is_damaged(tmp_path: Path, name: str, where: str, value: Any, words: str) -> None:
    report = json.loads((RESULTS / f"{name}.json").read_text())
    *path, last = [int(key) if key.isdigit() else key for key in where.split()]
    inside = report
    for key in path:
        inside = inside[key]
    if value is None:
        del inside[last]
    else:
        inside[last] = value
    (tmp_path / f"{name}.json").write_text(json.dumps(report))
    message = refused("--out", str(tmp_path), "--page", str(tmp_path / "page.md"))
    assert message.startswith(f"{tmp_path / f'{name}.json'}: ")
    assert words in message
    assert not (tmp_path / "page.md").exists()


def test_wrong_words_about_the_page(tmp_path: Path) -> None:
    page = str(tmp_path / "page.md")
    assert "--page: expected a file to write, but got the folder" in refused("--page", str(tmp_path))
    assert "--out: expected a folder with results of benchmarks, but got" in refused(
        "--out", str(tmp_path / "none"), "--page", page
    )
    for options in (["--quick"], ["--parts", "layer"], ["--device", "cpu"]):
        assert f"NAME: expected a benchmark for {options[0]}: --page alone runs none" in refused("--page", page, *options)


def test_a_benchmark_and_then_the_page_with_its_picture(tmp_path: Path) -> None:
    arguments = ["certificate", "--quick", "--threads", "1", "--out", str(tmp_path), "--page", str(tmp_path / "docs" / "speed.md")]
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code == 0, result.output
    text = (tmp_path / "docs" / "speed.md").read_text()
    assert text.index("](images/certificate.png)") < text.index("| what | file |")
    assert (tmp_path / "docs" / "images" / "certificate.png").stat().st_size > 10_000
    assert "| steps | length of the last step | true error | certified bound |" in section(text, "Error bound and true error")
    assert not (tmp_path / "docs" / "speed").exists()


def test_a_file_that_the_page_does_not_know_has_a_section(tmp_path: Path) -> None:
    report = {"benchmark": "new", "targets": [{"name": "as fast", "wanted": ">= 1", "value": 2.0, "met": True}]}
    (tmp_path / "something_new.json").write_text(json.dumps(report))
    text = write_page(tmp_path, tmp_path / "page.md").read_text()
    assert "| as fast | >= 1 | 2 | ✓ met |" in section(text, "Something new")


def test_torch_waits_until_something_needs_it(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom convergent import InputError\nfrom convergent.cli.bench import run\n"
        f"try:\n    run([], None, False, Path('none'), 0, 1, [], Path({str(tmp_path)!r}))\n"
        "except InputError as error:\n    assert '--page' in str(error)\nelse:\n    raise SystemExit('no error')\n"
        "assert 'benchmarks.command' in sys.modules and 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
