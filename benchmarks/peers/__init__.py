"""The others: what is out there for the same task, each used as its authors mean it to be used."""

from __future__ import annotations

from importlib.util import find_spec


def missing(package: str) -> str | None:
    """Why a peer cannot take part, or None where its package is installed."""
    return None if find_spec(package) else f"{package} is not installed"
