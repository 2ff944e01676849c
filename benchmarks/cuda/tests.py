"""python -m benchmarks.cuda.tests [FOLDER]: the tests that need a CUDA device, and what came of them, as cuda_tests.json.

Some of them run once more under compute-sanitizer, where there is one, which looks at every access to memory.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.machine import ROOT, machine
from convergent.storage.files import write_json
from convergent.training.provenance import commit

MARKED = ("-m", "cuda", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark")
# every kernel, once: products, hubs, whole solves, steps of one and of several graphs, bfloat16, gradients
CHECKED = (
    "test_one_pass[3-dtype0 or test_one_pass[64-dtype1 or test_hubs[5000 or test_settle[True-3 or test_settle[False-17 or "
    "test_shapes or test_steps[sizes0 or test_steps[sizes3 or test_steps_of_a_hub or bfloat16 or test_large_graphs"
)
SECONDS = 120  # that the checked ones may take


class Outcomes:
    """A plugin of pytest that keeps what became of every test."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.found[report.nodeid] = report.outcome


def main() -> int:
    folder, workers = Path(sys.argv[1] if len(sys.argv) > 1 else "results/bench"), sys.argv[2] if len(sys.argv) > 2 else "8"
    outcomes = Outcomes()
    code = pytest.main([*MARKED, "-n", workers, str(ROOT / "tests")], plugins=[outcomes])
    result = {
        "benchmark": "cuda_tests",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        "exit_code": int(code),
        "outcomes": dict(Counter(outcomes.found.values())),
        "not_passed": sorted(test for test, outcome in outcomes.found.items() if outcome != "passed"),
        "memcheck": memcheck(),
        "tests": sorted(outcomes.found),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "cuda_tests.json", result)
    print(json.dumps({name: result[name] for name in ("outcomes", "not_passed", "memcheck")}, indent=1))
    return int(code)


def memcheck() -> dict[str, Any]:
    """Under compute-sanitizer's memcheck; torch's allocator is off, so that a step beyond a tensor is a step into nothing."""
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if tool is None:
        return {"skipped": "there is no compute-sanitizer"}
    check = [tool, "--tool", "memcheck", "--error-exitcode", "86"]
    tests = [
        sys.executable,
        "-m",
        "pytest",
        *MARKED,
        "-p",
        "no:xdist",
        "-k",
        CHECKED,
        str(ROOT / "tests" / "kernels" / "test_cuda.py"),
    ]
    environment = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        done = subprocess.run(
            ["env", *(f"{name}={value}" for name, value in environment.items()), *check, *tests],
            cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        return {"skipped": f"not done after {SECONDS} s", "output": str(late.stdout)[-300:]}
    summary = re.findall(r"ERROR SUMMARY: (.*)", done.stdout + done.stderr)
    passed = re.findall(r"\d+ passed.*", done.stdout)
    return {"exit_code": done.returncode, "errors": summary[-1:], "tests": passed[-1:], "settings": environment, "chosen": CHECKED}


if __name__ == "__main__":
    sys.exit(main())
