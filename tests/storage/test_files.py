from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from convergent import InputError
from convergent.storage import files
from convergent.storage.files import (
    append_bytes,
    discard_folder,
    private_name,
    read_json,
    remove_parts,
    whole_file,
    write_atomically,
    write_json,
)


def test_a_write_that_fails_leaves_the_old_file(tmp_path) -> None:
    path = tmp_path / "config.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    with pytest.raises(TypeError):
        write_atomically(path, "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError), whole_file(path) as stream:
        stream.writelines([b"half", "text"])  # type: ignore[list-item]
    assert read_json(path) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["config.json"]


def test_bad_json(tmp_path) -> None:
    with pytest.raises(InputError, match="no such file: "):
        read_json(tmp_path / "config.json")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="expected JSON"):
        read_json(tmp_path / "config.json")


def test_two_writers_have_parts_of_their_own(tmp_path) -> None:
    path = tmp_path / "table.csv"
    assert len({private_name(path) for _ in range(100)}) == 100
    with whole_file(path) as one, whole_file(path) as other:
        one.write(b"one")
        other.write(b"other")
    assert path.read_bytes() == b"one"  # the last to end, whole
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="folders cannot be synced there")
def test_content_and_name_reach_the_disk_in_this_order(tmp_path, monkeypatch) -> None:
    done = []
    sync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append(os.readlink(f"/proc/self/fd/{descriptor}")) or sync(descriptor))
    monkeypatch.setattr(Path, "replace", lambda self, target: done.append("rename") or replace(self, target))
    write_atomically(tmp_path / "a", b"content")
    part, renamed, folder = done
    assert part.startswith(str(tmp_path / ".a."))
    assert (renamed, folder) == ("rename", str(tmp_path))


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path, monkeypatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_atomically(tmp_path / "a", b"old")
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as found:
        write_atomically(tmp_path / "a", b"new")
    assert found.value.filename == str(tmp_path / "a")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("a", b"old")]


def test_parts_of_killed_processes_are_removed_and_nothing_else(tmp_path) -> None:
    for name in ("a", "b"):
        private_name(tmp_path / name).write_bytes(b"half")
    private_name(tmp_path / "folder").mkdir()
    others = [".a.part", "a.1-00000000.part", ".hidden"]
    for name in others:
        (tmp_path / name).touch()
    remove_parts(tmp_path, "a")
    assert len(list(tmp_path.iterdir())) == len(others) + 2
    remove_parts(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(others)


def test_a_folder_is_discarded_at_once(tmp_path, monkeypatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    discard_folder(tmp_path / "a")
    assert [file.name for file in tmp_path.iterdir()] == ["b"]
    monkeypatch.setattr(files.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        discard_folder(tmp_path / "b")
    assert not (tmp_path / "b").exists()
    monkeypatch.undo()
    remove_parts(tmp_path)
    assert not list(tmp_path.iterdir())


def test_appended_text_is_not_changed(tmp_path) -> None:
    for text in (b"a\n", b"b\r\n"):
        append_bytes(tmp_path / "a", text)
    assert (tmp_path / "a").read_bytes() == b"a\nb\r\n"


def test_it_needs_nothing_but_python() -> None:
    code = "import sys, convergent.storage.files, convergent.storage.lock, convergent.storage.fingerprint\n"
    code += "print([name for name in ('torch', 'numpy', 'pandas') if name in sys.modules])"
    source = Path(files.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(source)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
