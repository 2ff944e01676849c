"""Signals that ask a process to end: Ctrl-C, what schedulers send, and the end of a terminal.

A command is stopped at once, by an exception that says by which signal. A training finishes its step first, so that the step is
kept; a second signal does not wait.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Stopped(KeyboardInterrupt):
    """The process was asked to end. It is caught where Ctrl-C is."""

    def __init__(self, signum: int = signal.SIGINT):
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum


def exit_code(stop: BaseException | None) -> int:
    """As shells have it: 128 and the number of the signal, which is SIGINT's where no other is known."""
    return 128 + (stop.signum if isinstance(stop, Stopped) else signal.SIGINT)


class StopRequest:
    """The first signal that came, for whoever looks. The next one raises ``Stopped`` wherever the program is, and one more ends it.

    Args:
        wait: False: the first one raises it.
    """

    def __init__(self, wait: bool = True) -> None:
        self.wait = wait
        self.received: int | None = None
        self.handlers: dict[int, Any] = {}  # those that were there before

    def __call__(self, signum: int, _: FrameType | None = None) -> None:
        first, self.received = self.received is None, self.received or signum
        if first and self.wait:
            return
        if not _is_worker():  # whose parent knows when it has waited long enough
            _listen(dict.fromkeys(self.handlers, signal.SIG_DFL))
            raise Stopped(signum)

    def listen(self) -> None:
        """Be called, also where somebody else has taken the place since."""
        _listen(dict.fromkeys(self.handlers, self))

    def stopped(self) -> Stopped:
        return Stopped(signal.SIGINT if self.received is None else self.received)


@contextmanager
def deferred() -> Iterator[StopRequest]:
    """Signals are written down and nothing else, within the block; a worker leaves Ctrl-C to its parent."""
    request = StopRequest()
    wanted = [signum for signum in SIGNALS if signum != signal.SIGINT] if _is_worker() else SIGNALS
    with _handled(wanted, request) as request.handlers:
        yield request


@contextmanager
def at_once() -> Iterator[StopRequest]:
    """SIGTERM and SIGHUP raise ``Stopped``, as Ctrl-C raises KeyboardInterrupt; a second one ends the process."""
    request = StopRequest(wait=False)
    with _handled([signum for signum in SIGNALS if signum != signal.SIGINT], request) as request.handlers:
        yield request


@contextmanager
def _handled(signals: Any, handler: Callable[[int, FrameType | None], None]) -> Iterator[dict[int, Any]]:
    """Only the main thread can; a terminal's end that is ignored, as under nohup, stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield {}
        return
    hangup = getattr(signal, "SIGHUP", None)
    before = {each: signal.getsignal(each) for each in signals if not (each == hangup and signal.getsignal(each) == signal.SIG_IGN)}
    _listen(dict.fromkeys(before, handler))
    try:
        yield before
    finally:
        _listen(before)


def _listen(handlers: dict[int, Any]) -> None:
    for signum, handler in handlers.items():
        signal.signal(signum, signal.SIG_DFL if handler is None else handler)


def _is_worker() -> bool:
    return multiprocessing.parent_process() is not None
