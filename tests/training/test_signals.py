from __future__ import annotations

import os
import signal
import threading

import pytest

from convergent.training.signals import SIGNALS, Stopped, StopRequest, at_once, deferred, exit_code


@pytest.fixture(autouse=True)
def handlers():
    """Handlers are as they were, whatever happens."""
    before = {signum: signal.getsignal(signum) for signum in SIGNALS}
    yield before
    after = {signum: signal.getsignal(signum) for signum in SIGNALS}
    for signum, handler in before.items():
        signal.signal(signum, handler)
    assert after == before


def send(signum: int) -> None:
    os.kill(os.getpid(), signum)


def test_exit_codes_are_those_of_shells() -> None:
    codes = [exit_code(Stopped(signum)) for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)]
    assert codes == [129, 130, 143]
    assert exit_code(KeyboardInterrupt()) == exit_code(None) == 130


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_is_stopped_at_once(signum) -> None:
    with pytest.raises(KeyboardInterrupt) as stop, at_once():
        send(signum)
    assert exit_code(stop.value) == 128 + signum


def test_after_the_first_signal_the_next_ends_the_process() -> None:
    with at_once():
        with pytest.raises(Stopped):
            send(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_training_hears_the_first_and_obeys_the_second(signum) -> None:
    with deferred() as stop:
        assert stop.received is None
        send(signum)
        assert stop.received == signum
        assert stop.stopped().signum == signum
        with pytest.raises(Stopped, match="SIGTERM"):
            send(signal.SIGTERM)
        assert signal.getsignal(signum) == signal.SIG_DFL


def test_it_listens_again_where_others_took_its_place() -> None:
    with deferred() as stop:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stop.listen()
        send(signal.SIGTERM)
        assert stop.received == signal.SIGTERM


@pytest.mark.parametrize("listening", [at_once, deferred])
def test_a_hangup_that_is_ignored_stays_so(listening) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with listening():
            send(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_leave_signals_alone() -> None:
    seen = []

    def run() -> None:
        with deferred() as stop, at_once():
            stop.listen()
            seen.append(stop.handlers)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [{}]


def test_a_worker_leaves_the_second_signal_to_its_parent(monkeypatch) -> None:
    monkeypatch.setattr("multiprocessing.parent_process", lambda: object())
    stop = StopRequest()
    for _ in range(3):
        stop(signal.SIGTERM)
    assert stop.received == signal.SIGTERM
    with deferred() as stop:
        assert signal.SIGINT not in stop.handlers
