"""TensorBoard's log, written row by row. Its own writer has a thread, which a full disk ends with a traceback."""

from __future__ import annotations

import importlib.util
import io
import os
import time
from pathlib import Path
from typing import Any

from convergent.storage.files import append_bytes


class Board:
    """A log that goes on after ``step``; what earlier ones in the folder hold of later steps is marked as undone."""

    def __init__(self, folder: Path, step: int):
        from tensorboard.compat.proto import event_pb2  # type: ignore[import-untyped]

        folder.mkdir(exist_ok=True)
        self.path = folder / f"events.out.tfevents.{time.time_ns():019d}.{os.getpid()}"
        self._append(file_version="brain.Event:2")
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._append(step=step + 1, session_log=start)

    def add(self, values: dict[str, float], step: int) -> None:
        from tensorboard.compat.proto import summary_pb2

        entries = [summary_pb2.Summary.Value(tag=label, simple_value=value) for label, value in values.items()]
        self._append(step=step, summary=summary_pb2.Summary(value=entries))

    def _append(self, **event: Any) -> None:
        from tensorboard.compat.proto import event_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

        content = io.BytesIO()
        RecordWriter(content).write(event_pb2.Event(wall_time=time.time(), **event).SerializeToString())
        append_bytes(self.path, content.getvalue())


def open_board(folder: Path, step: int) -> Board | None:
    """None: TensorBoard is not installed."""
    return None if importlib.util.find_spec("tensorboard") is None else Board(folder, step)
