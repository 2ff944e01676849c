from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from convergent import InputError
from convergent.experiments.printed import GRID, VALUE_ITERATION
from convergent.report import reproduction_figures as figures
from convergent.report.reproduction import SECTIONS, write_page

ROOT = Path(__file__).parents[2]
COLUMNS = [list(column) for column in GRID]


def values(mape: float) -> dict:
    return {"mape": [[mape, 0.5]] * 8, "policy_accuracy": [[0.8, 0.1]] * 8, "parameters": 280_069}


def timed(*seconds: float | None) -> dict:
    done = [None if second is None else 2**20 for second in seconds]
    repeats = [0 if second is None else 100 for second in seconds]
    stopped = {"by": "memory", "at": 200} if None in seconds else None
    return {"median": seconds, "repeats": repeats, "memory": done, "stopped": stopped}


TABLES = {
    "value-iteration": {"columns": COLUMNS, "rows": {"CGS(16)": values(7.16), "mine": values(1.0)}},
    "ablation-gamma": {"columns": COLUMNS[:2], "rows": {f"gamma={gamma}": values(3 - gamma) for gamma in (0.3, 0.5, 0.7)}},
    "value-iteration-example": {
        "graphs": [
            {
                "edges": [[0, 1], [1, 2]],
                "predicted": [1.0, 2.0, 3.0],
                "true": [1.1, 2.1, 2.9],
                "positions": [[0, 0], [1, 0], [0, 1]],
            },
            {"edges": [[0, 1]], "predicted": [1.0, 2.0], "true": [1.0, 2.0]},
        ]
    },
    "pore-networks": {
        "sizes": [100, 800],
        "rows": {
            "CGS(8)": {"mse": [[4e-4, 1e-4], [9e-4, 2e-3]], "seeds": {"0": [[4e-4, 1e-4], [9e-4, 2e-3]]}},
            "IGNN": {"mse": [[0.01, 0.001], None]},
            "GNN(1)": {"mse": [[0.02, 0.01], [0.02, 0.01]], "seeds": {str(n): [[0.02, 0.01], [n / 99, 0.01]] for n in (1, 2)}},
            "GNN(8)": {"mse": [[0.02, 0.01], [0.02, 0.01]]},
        },
    },
    "training-curves": {"rows": {"CGS(4)": {"steps": [1, 10, 100], "seeds": {"0": [1.0, 0.1, 0.01], "1": [1.1, 0.2, 0.01]}}}},
    "sample-efficiency": {"sizes": [128, 256], "rows": {"CGS(64)": {"train": {}, "mape": [[9.0, 2.0], [5.0, 1.0]]}}},
    "classification": {
        "A": {"columns": ["MUTAG", "NCI1"], "rows": {"CGS(8)": [[93.7, 6.0], None]}},
        "B": {"columns": ["MUTAG"], "rows": {"CGS(8)": [[94.2, 5.0]]}},
    },
    "runtime": {
        "device": "cpu",
        "sizes": [100, 200],
        "repeats": 100,
        "memory_limit": 24 * 2**30,
        "rows": {"Auto": timed(0.0002, 0.0004), "dense inverse (paper)": timed(0.5, None)},
    },
    "complexity": {
        "rows": {
            "Implicit": {"iterations": [10, 400], "saved": [1000, 1000], "peak": [None, None]},
            "Unrolled": {"iterations": [10, 400], "saved": [5000, 200_000], "peak": [6000, 210_000]},
        }
    },
}


def report(name: str, **changes) -> dict:
    return {
        "experiment": name,
        "title": f"Title of {name}",
        "quick": False,
        "date": "2026-01-02T03:04:05+00:00",
        "commits": ["0123456789abcdef"],
        "machines": [{"system": "Linux", "cpu": "x86_64", "threads": 2, "gpu": "H200", "device": "cuda"}],
        "seeds": [0, 1],
        "deviations": [f"A deviation of {name}."],
        "table": TABLES.get(name, {}),
        "statements": [
            {"text": "This is so.", "holds": True, "evidence": "in 8 of 8"},
            {"text": "That is so.", "holds": False, "evidence": ""},
            {"text": "Who knows.", "holds": None, "evidence": "too few"},
        ],
        **changes,
    }


def write(folder: Path, *reports: dict) -> Path:
    folder.mkdir(exist_ok=True)
    for each in reports:
        (folder / f"{each['experiment']}.json").write_text(json.dumps(each))
    return folder


def page_of(folder: Path, *reports: dict) -> str:
    return write_page(write(folder / "results", *reports), folder / "docs" / "reproduction.md").read_text()


def section(page: str, title: str) -> str:
    return page.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, page_of(folder, *map(report, TABLES))


@pytest.mark.parametrize("name", TABLES)
def test_every_experiment_says_where_it_comes_from_and_what_it_found(whole, name):
    text = section(whole[1], f"Title of {name}")
    assert "**✓ holds:** This is so. (in 8 of 8)\n" in text
    assert "**✗ does not hold:** That is so.\n" in text
    assert "**? undecided:** Who knows. (too few)\n" in text
    assert f"- A deviation of {name}." in text
    assert "seeds 0, 1 · run at `0123456789`" in text
    assert "Linux, x86_64, 2 threads, H200, device cuda" in text
    assert "2026-01-02" in text
    assert "warning" not in text


def test_ours_the_papers_and_the_difference_in_its_deviations(whole):
    text = section(whole[1], "Title of value-iteration")
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if "**CGS(16)**" in line)
    ours, paper, difference = lines[start : start + 3]
    assert ours.startswith("| **CGS(16)** | ours | 7.16 ± 0.50 |")
    assert paper.startswith("|  | paper | 4.60 ± 2.56 |")
    assert difference.startswith("|  | difference | +1.0 σ |")
    assert "| **SSE** | paper | 7.40 ± 4.54 |" in text  # not run, but printed
    assert "mine 280,069" in text


def test_few_columns_are_laid_beside_their_own(whole):
    text = section(whole[1], "Title of ablation-gamma")
    second = VALUE_ITERATION["ablation-gamma"]["gamma=0.3"]["mape"][1]
    assert f"|  | paper | 5.93 ± 3.54 | {second[0]:.2f} ± {second[1]:.2f} |\n" in text


def test_both_procedures_of_classification(whole):
    text = section(whole[1], "Title of classification")
    assert "| **CGS(8)** | ours | 93.7 ± 6.0 | – |\n|  | paper | 86.5 ± 7.2 | 77.6 ± 2.2 |\n|  | difference | +1.0 σ | – |" in text
    assert "| **CGS(8)** | ours | 94.2 ± 5.0 |\n|  | paper | 94.2 ± 5.2 |\n|  | difference | +0.0 σ |" in text
    assert "| **DGCNN** | paper | 85.8 | 74.4 |" in text  # printed without a deviation


def test_tables_without_printed_numbers(whole):
    assert "| CGS(8) | 0.40 ± 0.10 | 0.90 ± 2.00 |" in section(whole[1], "Title of pore-networks")
    assert "| CGS(64) | 9.00 ± 2.00 | 5.00 ± 1.00 |" in section(whole[1], "Title of sample-efficiency")
    assert "| 100 | 200 µs, 1 MiB | 500 ms, 1 MiB |\n| 200 | 400 µs, 1 MiB | over 24 GiB |" in section(whole[1], "Title of runtime")
    assert "| 400 | 0.977 KiB | – | 195 KiB | 205 KiB |" in section(whole[1], "Title of complexity")


DRAWN = {
    "ablation-gamma": figures.HEIGHT,
    "complexity": figures.HEIGHT,
    "pore-networks": figures.HEIGHT,
    "pore-networks-layers": figures.HEIGHT,
    "runtime": 3.8,
    "sample-efficiency": figures.HEIGHT,
    "training-curves": figures.HEIGHT,
    "value-iteration": figures.HEIGHT,
    "value-iteration-example": 5.6,
}


@pytest.mark.parametrize(("name", "height"), DRAWN.items())
def test_figures_are_drawn_and_shown(whole, name, height):
    from matplotlib.image import imread

    folder, text = whole
    image = imread(folder / "docs" / "reproduction" / f"{name}.png")
    assert image.shape[:2] == (round(height * figures.DPI), round(figures.WIDTH * figures.DPI))
    assert len(np.unique(image.reshape(-1, image.shape[2]), axis=0)) > 10  # not an empty sheet
    assert f"](reproduction/{name}.png)" in text


def test_many_lines_can_be_told_apart():
    styles = list(islice(figures.line_styles(), 32))
    assert len(set(styles)) == 32
    assert len(set(styles[:8])) == len({colour for colour, *_ in styles[:8]})


def test_nothing_is_drawn_that_is_not_shown(whole):
    assert sorted(path.stem for path in (whole[0] / "docs" / "reproduction").iterdir()) == sorted(DRAWN)


def test_the_same_results_give_the_same_page_and_figures(whole, tmp_path):
    folder, text = whole
    assert page_of(tmp_path, *map(report, TABLES)) == text
    for name in DRAWN:
        one, other = (root / "docs" / "reproduction" / f"{name}.png" for root in (folder, tmp_path))
        assert one.read_bytes() == other.read_bytes()


def test_the_page_in_the_repository_is_made_from_the_results_in_it(tmp_path):
    text = write_page(ROOT / "results" / "reproduce", tmp_path / "reproduction.md").read_text()
    words = "run: convergent reproduce --workers 0 --page docs/reproduction.md"
    assert (ROOT / "docs" / "reproduction.md").read_text() == text, words


def test_the_summary_stands_above_the_table_of_states(whole):
    text = whole[1]
    assert text.index("\n## In short\n") < text.index("\n## Experiments and statements\n") < text.index("| experiment | state |")
    assert "| CGS(16) | 7.16 (4.60) |" in section(text, "In short")


def test_an_empty_folder_gives_a_page_that_says_so(tmp_path):
    text = page_of(tmp_path)
    for each in SECTIONS:
        assert f"There is no `{each.name}.json`." in section(text, each.title)
        assert f"| {each.title} | not run | – | – | – | – |" in text
    assert not (tmp_path / "docs" / "reproduction").exists()


def test_a_small_budget_is_marked(tmp_path):
    text = page_of(tmp_path, report("complexity", quick=True), report("runtime"))
    assert "Small budget: for the form only." in section(text, "Title of complexity")
    assert "| Title of complexity | small budget: for the form only | 1 | 1 | 1 | 2026-01-02 |" in text
    assert "Small budget" not in section(text, "Title of runtime")
    assert "| Title of runtime | complete | 1 | 1 | 1 | 2026-01-02 |" in text


@pytest.mark.parametrize("name", [each.name for each in SECTIONS])
def test_what_is_not_there_is_skipped(tmp_path, name):
    text = page_of(tmp_path, {"experiment": name}, {"experiment": "new", "title": "Something new", "table": {"rows": {}}})
    assert "![" not in text
    assert "\n## Something new\n" in text
    rows = {"CGS(8)": {}, "IGNN": {"mape": [None], "mse": [None]}}
    page_of(tmp_path, {"experiment": name, "table": {"rows": rows, "graphs": [{}]}})


def test_a_file_that_is_no_json_is_named(tmp_path):
    (tmp_path / "runtime.json").write_text("{")
    with pytest.raises(InputError, match=r"runtime\.json"):
        write_page(tmp_path, tmp_path / "page.md")


def test_matplotlib_is_imported_late_and_needs_no_display():
    code = "import sys, convergent.report.reproduction as r; assert 'matplotlib' not in sys.modules"
    draw = "f = r.figures.mse_by_pores({'sizes': [1, 2], 'rows': {'a': {'mse': [[1, 0], [2, 1]]}}}); f.canvas.draw()"
    late = "assert 'matplotlib.pyplot' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", f"{code}; {draw}; {late}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
