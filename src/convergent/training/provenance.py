"""Where a result comes from: enough to read a number by, nothing that names a host or a path."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


def provenance() -> dict[str, Any]:
    versions = {"python": platform.python_version(), "torch": torch.__version__, "lightning": version("lightning")}
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    machine = {"system": platform.system(), "cpu": platform.machine(), "threads": torch.get_num_threads(), "gpu": gpu}
    return {"commit": commit()["hash"], "versions": versions, "machine": machine}


def commit() -> dict[str, Any]:
    """The commit that is run; results, which runs write, do not make a tree dirty.

    A copy of a tree without its history is told by the variable COMMIT.
    """
    if copied := os.environ.get("COMMIT"):
        return {"hash": copied, "dirty": False}
    head = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--", ":/", ":(top,exclude)results")
    return {"hash": head or None, "dirty": None if changes is None else bool(changes)}


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # no git
        return None
    return done.stdout.strip() if done.returncode == 0 else None
