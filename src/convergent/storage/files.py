"""Files that are whole or not there, and that survive a loss of power once they are there.

Content goes into a part beside its place, with a name that no other process uses, reaches the disk, and is then renamed. The
folder reaches the disk too, as the new name is part of it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from convergent.errors import InputError
from convergent.settings import parse_json

PART = ".part"  # the ending of what is not finished


def private_name(path: Path) -> Path:
    """A hidden neighbour of ``path`` whose name no other process and no other call has."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{PART}")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A stream into a part, which becomes ``path`` at the end of the block, or is removed where that fails."""
    partial = private_name(path)
    try:
        with _naming(path, partial):
            with partial.open("xb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            partial.replace(path)
            sync_folder(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def _naming(path: Path, partial: Path | None = None) -> Iterator[None]:
    """Errors of writing, such as a full disk, do not say which file they belong to, or name its part."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename in (None, partial and str(partial)):
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise


def write_atomically(path: Path, content: bytes) -> None:
    """The whole file or nothing."""
    with whole_file(path) as stream:
        stream.write(content)


def append_bytes(path: Path, content: bytes) -> None:
    """More at the end of a file; a crash may leave some of it, and ``sync_file`` makes it last."""
    with _naming(path), path.open("ab") as stream:
        stream.write(content)


def sync_file(path: Path) -> None:
    """Wait until a file is on the disk, if there is one."""
    if path.exists():
        with _naming(path), path.open("r+b") as stream:
            os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk; Windows has no such call."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with _naming(folder):
            os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot
            raise
    finally:
        os.close(descriptor)


def discard_folder(folder: Path) -> None:
    """Remove a folder: to others it is there as it was, or gone; a crash may leave a part behind, never half a folder."""
    hidden = private_name(folder)
    folder.rename(hidden)
    sync_folder(folder.parent)
    shutil.rmtree(hidden)


def remove_parts(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes left in a folder, of one file or of all; for the owner of these files only."""
    which = ".+" if name is None else re.escape(name)
    pattern = re.compile(rf"\.{which}\.\d+-[0-9a-f]{{8}}{re.escape(PART)}")
    for entry in folder.iterdir():
        if not pattern.fullmatch(entry.name):
            continue
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def write_json(path: Path, data: Any) -> None:
    write_atomically(path, (json.dumps(data, indent=1) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"no such file: {path}") from None
    except ValueError as error:  # not JSON, or not UTF-8
        raise InputError(f"{path}: expected JSON, but could not read it: {error}") from error
