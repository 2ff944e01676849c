"""Locks between processes, on a file that names the process that holds it.

The system holds the lock (``flock``; on Windows ``msvcrt.locking``) and lets go of it when the process ends, however that happens.
Where a file system cannot lock, a file that only one process can create takes its place: the claim of a process of the same
machine that is no longer running is taken over, and that of another machine has to be removed by hand, as the error says.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from convergent.errors import InputError
from convergent.storage.files import private_name

LOCK = ".lock"
CLAIM = ".claim"  # the ending of the file that stands for a lock where there are none
POLL = 0.1  # seconds between two tries of one that waits
BUSY = (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)
MISSING = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)


class InUse(InputError):
    """Another process works here."""


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """A folder for this process alone. It is made where there is none, and removed again if it is left empty.

    Raises:
        InUse: another process owns it.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        with lock_file(folder / LOCK, str(folder)):
            yield
    finally:
        with suppress(OSError):  # not empty
            for each in made:
                each.rmdir()


@contextmanager
def lock_file(path: Path, what: str, wait: bool = False) -> Iterator[None]:
    """Hold the lock of a file, which is there only as long as somebody holds it.

    Args:
        path: of the file; its folder is made where there is none.
        what: the name of what is locked, for the error.
        wait: until others are done, instead of raising.

    Raises:
        InUse: another process holds it.
    """
    while (handle := _try(path)) is None:
        if not wait:
            raise InUse(f"{what}: in use by {_holder(path)}")
        time.sleep(POLL)
    try:
        yield
    finally:
        _release(path, handle)


def forget(path: Path) -> None:
    """Remove the file of a lock that nobody holds, which a process that was killed has left."""
    if path.exists() and (handle := _try(path)) is not None:
        _release(path, handle)


def _try(path: Path) -> int | None:
    """The open file, locked; None: another process has it."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:  # another process has just removed the folder
            continue
        try:
            got = _lock(handle)
        except OSError as error:
            if error.errno not in MISSING:
                os.close(handle)
                raise
            got = _claim(path)
        if got and _is_there(path, handle):
            with suppress(OSError):  # of a full disk; the lock is held
                os.ftruncate(handle, 0)
                os.write(handle, _self().encode())
            return handle
        os.close(handle)
        if not got:
            return None


def _is_there(path: Path, handle: int) -> bool:
    """Whether the file still has its name: its last holder may have removed it after it was opened here."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def _release(path: Path, handle: int) -> None:
    with suppress(FileNotFoundError):
        path.with_name(path.name + CLAIM).unlink()
    if os.name == "nt":  # a file that is open has to stay
        os.close(handle)
        with suppress(OSError):
            path.unlink()
        return
    path.unlink(missing_ok=True)
    os.close(handle)


def _self() -> str:
    return f"{os.getpid()} {socket.gethostname()}"


def _read(path: Path) -> tuple[int, str] | None:
    """Process and machine; None: they are not written yet."""
    with suppress(OSError, ValueError):
        pid, host = path.read_text(encoding="utf-8").split()
        return int(pid), host
    return None


def _holder(path: Path) -> str:
    claim = path.with_name(path.name + CLAIM)
    found = _read(claim) or _read(path)
    if found is None:
        return "another process"
    pid, host = found
    where = "" if host == socket.gethostname() else f" on {host}"
    remedy = f"; if there is no such process, remove {claim}" if claim.exists() else ""
    return f"another process (pid {pid}{where}){remedy}"


if os.name == "nt":
    import msvcrt

    def _lock(handle: int) -> bool:
        """One byte far behind the text, which can then be read."""
        os.lseek(handle, 1 << 20, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError as error:
            if error.errno in BUSY:
                return False
            raise
        os.lseek(handle, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def _lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in BUSY:
                return False
            raise
        return True


# --- without locks of the file system ---


def _claim(path: Path) -> bool:
    """Create the file that stands for the lock; that of a process of this machine that has ended is removed first."""
    claim = path.with_name(path.name + CLAIM)
    for _ in range(2):
        with suppress(FileExistsError):
            handle = os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(handle, _self().encode())
            os.close(handle)
            return True
        holder = _read(claim)
        if holder is None or holder[1] != socket.gethostname() or _runs(holder[0]):
            return False
        _take_away(claim, holder)
    return False


def _take_away(claim: Path, holder: tuple[int, str]) -> None:
    """Remove the claim of a process, and of no other that may have come in between."""
    aside = private_name(claim)
    with suppress(FileNotFoundError):
        claim.rename(aside)
        if _read(aside) != holder:
            os.link(aside, claim)
        aside.unlink()


def _runs(pid: int) -> bool:
    if os.name == "nt":  # where signal 0 would end it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
