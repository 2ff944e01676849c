"""The benchmarks, which live in the repository and not in the package."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from convergent.cli.device import usable
from convergent.errors import InputError

PACKAGE = Path(__file__).resolve().parents[1]


def run(
    names: Sequence[str],
    device: str | None,
    quick: bool,
    out: Path,
    seed: int,
    threads: int,
    parts: Sequence[str],
    page: Path | None,
) -> None:
    root = checkout(PACKAGE)
    if device is not None:
        usable(device)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    import_module("benchmarks.command").run(names, device, quick, out, seed, threads, parts, page)


def checkout(package: Path) -> Path:
    """The repository this package was installed from in place."""
    for folder in package.parents:
        if (folder / "benchmarks" / "command.py").is_file():
            return folder
    raise InputError(f"bench: expected a checkout of the repository, installed with pip install -e, but got {package}")
