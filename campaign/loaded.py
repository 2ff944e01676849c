"""Modules of examples/ and tests/ that serve here too."""

from __future__ import annotations

import importlib.util
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


@lru_cache
def loaded(place: str) -> ModuleType:
    """The module in a file of the repository, as "tests/kills.py"."""
    path = ROOT / place
    name = "campaign_" + place.removesuffix(".py").replace("/", "_")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
