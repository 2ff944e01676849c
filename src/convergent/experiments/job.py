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

from convergent.storage.files import PART, read_json, remove_parts, write_json
from convergent.storage.lock import forget, lock_file
from convergent.training.provenance import provenance

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

    def run(self, folder: Path, device: str, wait: bool = False) -> None:
        """Do it and keep the result, unless it is there. A job whose settings name a device is run there, whatever the others are.

        Raises:
            InUse: another process is at it, and this one does not ``wait``.
        """
        device = self.settings.get("device", device)
        module, _, name = self.work.partition(":")
        with lock_file(self.lock(folder), f"{self.title} ({self.place(folder)})", wait):
            if self.done(folder):  # by another process
                return
            remove_parts(folder, self.place(folder).name)
            about = provenance()
            scratch = folder / f"{self.key}-{about['commit']}{PART}"  # another version of the code begins anew
            work: Work = getattr(importlib.import_module(f"convergent.experiments.{module}"), name)
            result = work(self.settings, device, scratch)
            what = {"title": self.title, "work": self.work, "settings": self.settings}
            write_json(self.place(folder), {**what, "result": result, "provenance": {**about, "device": device}})
            self.clear(folder)

    def clear(self, folder: Path) -> None:
        """Remove what the work left and its result has replaced; a process that was killed may not have come to it."""
        for left in folder.glob(f"{self.key}-*{PART}"):
            shutil.rmtree(left, ignore_errors=True)
        forget(self.lock(folder))

    def lock(self, folder: Path) -> Path:
        return folder / f".{self.key}.lock"
