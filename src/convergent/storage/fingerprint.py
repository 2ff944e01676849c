"""Inputs known by their content, so that work which is resumed goes on with the inputs that it was started with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from convergent.errors import InputError


def fingerprint(file: Path) -> str:
    """A number for the bytes of a file, in little memory and a fraction of the time that it takes to parse them."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=20)).hexdigest()


def require_same(where: str, before: object, now: Mapping[str, str], remedy: str) -> None:
    """Refuse inputs that differ from those of ``before``, by name.

    Raises:
        InputError: names what has changed.
    """
    known = before if isinstance(before, dict) else {}
    changed = [name for name in now if name in known and known[name] != now[name]]
    changed += [f"{name} (new)" for name in now if name not in known]
    changed += [f"{name} (missing)" for name in known if name not in now]
    if changed:
        verb = "has" if len(changed) == 1 else "have"
        raise InputError(f"{where}: {', '.join(changed)} {verb} changed since this was started; {remedy}")


class Inputs:
    """Files and their fingerprints, each under a name of its own."""

    def __init__(self, files: Iterable[Path]):
        self.files = {file.name: file for file in files}
        self.seen = {name: _signature(file) for name, file in self.files.items()}
        self.fingerprints = {name: fingerprint(file) for name, file in self.files.items()}

    def require_unchanged(self, where: str, remedy: str) -> None:
        """After they were read: that they are still the same. Content is compared where size or time differ."""
        touched = {name: file for name, file in self.files.items() if _signature(file) != self.seen[name]}
        now = {name: fingerprint(file) for name, file in touched.items() if file.exists()}
        require_same(where, {name: self.fingerprints[name] for name in touched}, now, remedy)


def _signature(file: Path) -> tuple[int, int] | None:
    if not file.exists():
        return None
    found = file.stat()
    return found.st_size, found.st_mtime_ns
