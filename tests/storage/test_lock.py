from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from convergent.storage import lock
from convergent.storage.lock import CLAIM, LOCK, InUse, forget, lock_file, owned

HOLD = """
import sys, time
from pathlib import Path
from convergent.storage import lock
if sys.argv[2] == "unsupported":
    def refuse(handle):
        raise OSError(37, "No locks available")
    lock._lock = refuse
with lock.owned(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def holder(folder: Path, how: str = "flock") -> subprocess.Popen:
    """A process that owns a folder."""
    environment = {**os.environ, "PYTHONPATH": str(Path(lock.__file__).parents[2])}
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder), how], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.fixture
def unsupported(monkeypatch) -> None:
    """A file system without locks."""

    def refuse(handle: int) -> bool:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock, "_lock", refuse)


def test_another_process_is_refused_and_a_dead_one_leaves_nothing_behind(tmp_path) -> None:
    folder = tmp_path / "run"
    process = holder(folder)
    with pytest.raises(InUse, match=rf"run: in use by another process \(pid {process.pid}\)$"), owned(folder):
        pass
    end(process)
    assert (folder / LOCK).exists()
    with owned(folder):
        assert (folder / LOCK).read_text().startswith(f"{os.getpid()} ")
    assert not (folder / LOCK).exists()


def test_the_same_process_is_refused_too(tmp_path) -> None:
    with owned(tmp_path), pytest.raises(InUse, match=f"pid {os.getpid()}"), owned(tmp_path):
        pass


def test_a_folder_that_stays_empty_is_not_left(tmp_path) -> None:
    with owned(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert not list(tmp_path.iterdir())
    with owned(tmp_path / "a" / "b"):
        (tmp_path / "a" / "file").touch()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["file"]
    (tmp_path / "was there").mkdir()
    with owned(tmp_path / "was there"):
        pass
    assert (tmp_path / "was there").is_dir()


def test_one_that_waits_comes_next(tmp_path) -> None:
    process = holder(tmp_path)
    began = time.monotonic()
    import threading

    threading.Timer(0.5, process.kill).start()
    with lock_file(tmp_path / LOCK, "it", wait=True):
        assert time.monotonic() - began >= 0.4
    end(process)


def test_a_lock_file_that_was_removed_meanwhile_is_none(tmp_path, monkeypatch) -> None:
    take, path = lock._lock, tmp_path / LOCK

    def late(handle: int) -> bool:
        monkeypatch.setattr(lock, "_lock", take)
        path.unlink()  # its holder has let it go, and somebody else made another one
        with path.open("w") as other:
            assert take(other.fileno())
        return take(handle)

    monkeypatch.setattr(lock, "_lock", late)
    with lock_file(path, "it"):
        assert path.exists()
        assert path.read_text().startswith(f"{os.getpid()} ")


@pytest.mark.usefixtures("unsupported")
def test_without_locks_of_the_system_a_claim_takes_their_place(tmp_path) -> None:
    process = holder(tmp_path, "unsupported")
    match = rf"in use by another process \(pid {process.pid}\); if there is no such process, remove .*{CLAIM}"
    with pytest.raises(InUse, match=match), owned(tmp_path):
        pass
    end(process)
    with owned(tmp_path):  # of this machine and not running any more
        assert (tmp_path / f"{LOCK}{CLAIM}").read_text().startswith(f"{os.getpid()} ")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("unsupported")
def test_the_claim_of_another_machine_stays(tmp_path) -> None:
    (tmp_path / f"{LOCK}{CLAIM}").write_text("1 elsewhere")
    with pytest.raises(InUse, match=r"\(pid 1 on elsewhere\); if there is no such process, remove"), owned(tmp_path):
        pass
    assert (tmp_path / f"{LOCK}{CLAIM}").exists()


@pytest.mark.usefixtures("unsupported")
def test_a_claim_that_came_in_between_is_put_back(tmp_path) -> None:
    claim = tmp_path / f"{LOCK}{CLAIM}"
    claim.write_text("2 elsewhere")
    lock._take_away(claim, (1, "elsewhere"))
    assert claim.read_text() == "2 elsewhere"
    assert list(tmp_path.iterdir()) == [claim]


def test_a_folder_that_cannot_be_made_is_told(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"), owned(tmp_path / "file"):
        pass


def test_what_a_killed_process_left_is_forgotten_and_what_another_holds_is_not(tmp_path) -> None:
    path = tmp_path / LOCK
    forget(path)
    path.write_text("1 elsewhere", encoding="utf-8")
    forget(path)
    assert not path.exists()
    with lock_file(path, "a file"):
        forget(path)
        assert path.exists()
    assert not path.exists()
