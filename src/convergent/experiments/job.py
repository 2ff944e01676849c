"""Jobs: pieces of work that stand alone, known by what they do, so that none is ever done twice."""

from __future__ import annotations

import hashlib
import importlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convergent.training.provenance import provenance
from convergent.training.run import read_json, write_json

Work = Callable[[dict[str, Any], str, Path], dict[str, Any]]


@dataclass(frozen=True)
class Job:
    """A call of ``module:function(settings, device, scratch)``; its result is data.

    The folder ``scratch`` is for what long work needs to go on after an interrupt; it is gone when the work is done.

    Attributes:
        title: what a progress bar says.
        work: where the function is, as "module:function" within this package.
        settings: all that the result depends on, as JSON has it. Two jobs with the same work and settings are one.
    """

    title: str
    work: str
    settings: dict[str, Any]

    @property
    def key(self) -> str:
        text = json.dumps([self.work, self.settings], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def place(self, folder: Path) -> Path:
        return folder / f"{self.key}.json"

    def done(self, folder: Path) -> bool:
        return self.place(folder).exists()

    def result(self, folder: Path) -> dict[str, Any]:
        """What came out, with where it came from under "provenance"."""
        return read_json(self.place(folder))

    def run(self, folder: Path, device: str) -> None:
        """Do it and keep the result. A job whose settings name a device is run there, whatever the others are run on."""
        device = self.settings.get("device", device)
        module, _, name = self.work.partition(":")
        about = provenance()
        scratch = folder / f"{self.key}-{about['commit']}.part"  # another version of the code begins anew
        work: Work = getattr(importlib.import_module(f"convergent.experiments.{module}"), name)
        result = work(self.settings, device, scratch)
        folder.mkdir(parents=True, exist_ok=True)
        what = {"title": self.title, "work": self.work, "settings": self.settings}
        write_json(self.place(folder), {**what, "result": result, "provenance": {**about, "device": device}})
        for left in folder.glob(f"{self.key}-*.part"):
            shutil.rmtree(left, ignore_errors=True)
