"""Kills at every file operation: a command is killed, or finds the disk full, at its n-th operation in a folder.

    with Forks() as forks:
        operations = forks.run(["predict", ...], watch=out).operations
        for number in range(1, operations + 1):
            forks.run(["predict", ...], watch=out, at=number)             # killed before its n-th operation
            forks.run(["predict", ..., "--resume"], watch=out)            # goes on

Operations are those that change what is on disk: opening a file for writing, the first write to it, fsync, rename, unlink, rmdir,
mkdir, truncate and link, on paths in the watched folder. A kill at a write leaves half of what was to be written.

Every command runs in a process of its own, forked from one that has imported everything, so that it takes as long as its work.
The module is its own server: ``python kills.py`` reads requests from its standard input.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import importlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

SOURCE = Path(__file__).resolve().parent.parent / "src"
KILL, FULL = "kill", "full"
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    Attributes:
        code: its exit code; of one that was killed, minus the signal.
        operations: that it did in the watched folder, up to its end.
        said, complained: what it printed.
    """

    code: int
    operations: int
    said: str
    complained: str


class Forks:
    """A process that runs commands in forks of itself. Use it in a ``with``.

    Args:
        modules: to import before the forks, beside those that train and predict.
        environment: variables to set for all commands.
    """

    def __init__(self, modules: Sequence[str] = (), environment: dict[str, str] | None = None):
        self.modules = modules
        threads = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        fixed = {"PYTHONPATH": str(SOURCE), "OMP_WAIT_POLICY": "passive", "COMMIT": "unknown"}  # git is slow to ask
        self.environment = {**os.environ, **fixed, **threads, **(environment or {})}

    def __enter__(self) -> Self:
        self.log = tempfile.TemporaryFile()
        command = [sys.executable, __file__, *self.modules]
        self.server = subprocess.Popen(
            command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        return self

    def __exit__(self, *_: Any) -> None:
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.close()
        self.server.wait(60)
        self.server.stdout.close()
        self.log.close()

    def run(
        self,
        command: list[Any] | str,
        watch: Path,
        at: int | None = None,
        fault: str = KILL,
        seconds: float = 600,
    ) -> Outcome:
        """One command in a fork.

        Args:
            command: arguments of ``convergent``, or Python source.
            watch: the folder whose operations count.
            at: the number of the operation, from 1, that does not happen; None: all do.
            fault: KILL ends the process there; FULL lets this and every later operation that needs space fail with ENOSPC.
            seconds: after which it is killed.
        """
        given = command if isinstance(command, str) else [str(each) for each in command]
        request = {"command": given, "watch": str(Path(watch).resolve()), "at": at, "fault": fault, "seconds": seconds}
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        line = self.server.stdout.readline()
        if not line:
            self.log.seek(0)
            raise RuntimeError("the server has ended: " + self.log.read().decode(errors="replace")[-2000:])
        return Outcome(**json.loads(line))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, by its path within."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# --- in the fork: the operations ---


class Injection:
    """Counts operations in a folder, in a file that outlives a kill, and stops at one of them."""

    def __init__(self, watch: str, at: int | None, fault: str, counter: str):
        self.watch, self.at, self.fault = watch, at, fault
        self.counter = os.open(counter, os.O_WRONLY | os.O_CREAT)
        self.count, self.busy = 0, False

    def install(self) -> None:
        sys.addaudithook(self.audit)
        self.fsync, self.open = os.fsync, io.open
        os.fsync = self.synced
        io.open = builtins.open = self.opened  # type: ignore[assignment]

    def is_watched(self, path: Any, descriptor: Any = None) -> bool:
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        if isinstance(descriptor, int) and descriptor >= 0:
            path = os.path.join(os.readlink(f"/proc/self/fd/{descriptor}"), os.fsdecode(path))
        path = os.path.abspath(os.fsdecode(path))
        return path == self.watch or path.startswith(self.watch + os.sep)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.busy:
            return
        if event == "open" and arguments[2] & WRITES and self.is_watched(arguments[0]):
            self.step(needs_space=True, path=arguments[0])
        elif event in CHANGES:
            place = arguments[-1] if event in ("os.remove", "os.rmdir", "os.mkdir") else None
            if self.is_watched(arguments[0], place):
                self.step(needs_space=event == "os.mkdir", path=arguments[0])

    def synced(self, descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        if self.is_watched(number):
            self.step(needs_space=True)
        self.fsync(number)

    def opened(self, file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        stream = self.open(file, mode, *arguments, **named)
        writes = set(mode) & set("wax+")
        return Written(stream, self) if writes and not isinstance(file, int) and self.is_watched(file) else stream

    def is_full(self) -> bool:
        return self.fault == FULL and self.at is not None and self.count >= self.at

    def step(self, needs_space: bool, path: Any = None, stream: Any = None, content: Any = None) -> None:
        """One operation, which is about to happen."""
        self.count += 1
        os.pwrite(self.counter, str(self.count).encode(), 0)
        if self.at is None or self.count < self.at:
            return
        if self.fault == FULL:
            if needs_space:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *([] if path is None else [os.fsdecode(path)]))
        elif self.count == self.at:
            if stream is not None:
                stream.write(content[: len(content) // 2])
                stream.flush()
            os.kill(os.getpid(), signal.SIGKILL)


class Written:
    """A stream whose first write is an operation."""

    def __init__(self, stream: Any, injection: Injection):
        self.stream, self.injection, self.begun = stream, injection, False

    def write(self, content: Any) -> int:
        whole = content if isinstance(content, str | bytes) else bytes(content)
        if not self.begun or self.injection.is_full():
            self.begun = True
            self.injection.step(needs_space=True, stream=self.stream, content=whole)
        return self.stream.write(whole)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __enter__(self) -> Written:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stream.close()

    def __iter__(self) -> Any:
        return iter(self.stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def execute(request: dict[str, Any], counter: str, outputs: tuple[str, str]) -> int:
    """In the fork: the command, with its operations counted; its exit code."""
    for number, name in zip((1, 2), outputs, strict=True):
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT)
        os.dup2(descriptor, number)
    injection = Injection(request["watch"], request["at"], request["fault"], counter)
    injection.install()
    command = request["command"]
    try:
        if isinstance(command, str):
            exec(compile(command, "command", "exec"), {"__name__": "__main__"})
        else:
            from convergent.cli import main

            sys.argv = ["convergent", *command]
            main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


# --- the server ---


def answer(request: dict[str, Any], folder: str) -> dict[str, Any]:
    counter, *outputs = (os.path.join(folder, name) for name in ("count", "said", "complained"))
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = execute(request, counter, (outputs[0], outputs[1]))
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    deadline = time.monotonic() + request["seconds"]
    while (found := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    said, complained = (Path(name).read_text(errors="replace") if os.path.exists(name) else "" for name in outputs)
    count = Path(counter).read_text() if os.path.exists(counter) else "0"
    return {"code": os.waitstatus_to_exitcode(found[1]), "operations": int(count or 0), "said": said, "complained": complained}


def warm_up() -> None:
    """Load compiled kernels before the forks, which then find them."""
    import torch

    from convergent.nn import ConvergentGraphSolver

    torch.set_num_threads(1)
    model = ConvergentGraphSolver(1, 1, heads=8)
    model(torch.ones(3, 1), torch.tensor([[0, 1, 2], [1, 2, 0]])).sum().backward()


def serve() -> None:
    with contextlib.suppress(ImportError):
        import tensorboard.summary.writer.record_writer  # noqa: F401
    import lightning  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import safetensors.torch  # noqa: F401

    import convergent.cli.work
    import convergent.training.train  # noqa: F401

    for name in sys.argv[1:]:
        importlib.import_module(name)
    warm_up()
    for line in sys.stdin:
        folder = tempfile.mkdtemp()
        found = answer(json.loads(line), folder)
        shutil.rmtree(folder)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
