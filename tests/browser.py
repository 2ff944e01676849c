"""Opens a page in a headless Chromium and reports what the browser saw.

It speaks the DevTools protocol over a pair of pipes (--remote-debugging-pipe), so that nothing but Chromium has to be installed.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

NAMES = "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # the sandbox refuses to run as root, as in containers; only pages of this project are opened
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--use-gl=angle",  # WebGL without a graphics card
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--allow-file-access-from-files",
)
# Chromium reads commands from file descriptor 3 and writes answers to 4, whichever numbers the pipes have here.
START = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
TIMEOUT = 120  # seconds for one page; software rendering on a busy machine is slow
QUIET = 1.0  # seconds without a message after which a loaded page is taken as finished


@dataclass(frozen=True)
class Visit:
    """What the browser saw.

    Args:
        dom: the document as HTML, after its scripts ran.
        console: one line for every console error, uncaught exception and failed request.
        answer: the value of the expression that was asked for, None without one.
    """

    dom: str
    console: list[str]
    answer: Any = None


def chromium() -> str | None:
    """Path of a Chromium or Chrome, None where none is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def open_page(
    path_or_url: Path | str,
    width: int = 1280,
    dark: bool = False,
    screenshot: Path | None = None,
    ask: str | None = None,
) -> Visit:
    """Load a page, wait until it is quiet, and report.

    Args:
        path_or_url: a file, or an address with its scheme.
        width: of the window, in CSS pixels.
        dark: prefer the dark colour scheme.
        screenshot: where to write a PNG of the whole page.
        ask: JavaScript whose value (also of a promise) is wanted; evaluated last, before the screenshot.

    Raises:
        RuntimeError: no Chromium, it ended early, or ``ask`` failed.
        TimeoutError: the page did not finish in time.
    """
    url = path_or_url if isinstance(path_or_url, str) and "://" in path_or_url else Path(path_or_url).resolve().as_uri()
    with _browser() as browser:
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        browser.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            browser.call(f"{domain}.enable")
        _resize(browser, width, 900)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.call("Emulation.setEmulatedMedia", features=[scheme])
        loading = browser.call("Page.navigate", url=url)
        if "errorText" in loading:
            raise RuntimeError(f"{url}: {loading['errorText']}")
        browser.wait_for("Page.loadEventFired")
        browser.wait_until_quiet()
        answer = None if ask is None else browser.evaluate(ask)
        dom = browser.evaluate("document.documentElement.outerHTML")
        console = [line for event in browser.events for line in _error(event)]
        if screenshot is not None:
            _resize_to_content(browser, width)
            screenshot.write_bytes(base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"]))
        return Visit(dom, console, answer)


def _resize(browser: _Browser, width: int, height: int) -> None:
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)


def _resize_to_content(browser: _Browser, width: int) -> None:
    """Make the window as high as the page, twice, because parts of the page may depend on the height of the window.

    (Chromium could capture beyond its window, but for a moment it makes the window one pixel wide then, and pages react to that.)
    """
    for _ in range(2):
        _resize(browser, width, round(browser.call("Page.getLayoutMetrics")["cssContentSize"]["height"]))
        browser.wait_until_quiet()


def _error(event: dict[str, Any]) -> Iterator[str]:
    """The line of an event that is an error, nothing for any other."""
    about = event["params"]
    if event["method"] == "Runtime.exceptionThrown":
        details = about["exceptionDetails"]
        yield details.get("exception", {}).get("description") or details["text"]
    elif event["method"] == "Runtime.consoleAPICalled" and about["type"] in ("error", "assert"):
        yield " ".join(str(value.get("value", value.get("description", value["type"]))) for value in about["args"])
    elif event["method"] == "Log.entryAdded" and about["entry"]["level"] == "error":
        yield f"{about['entry']['text']} {about['entry'].get('url', '')}".strip()


# --- the browser ---


@contextmanager
def _browser() -> Iterator[_Browser]:
    program = chromium()
    if program is None:
        raise RuntimeError(f"no browser: none of {', '.join(NAMES)} is installed")
    commands_read, commands = os.pipe()
    answers, answers_write = os.pipe()
    with TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        start = [sys.executable, "-c", START, str(commands_read), str(answers_write)]
        arguments = [*start, program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            arguments, pass_fds=(commands_read, answers_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(commands_read)
        os.close(answers_write)
        try:
            yield _Browser(commands, answers)
        finally:
            os.close(commands)  # Chromium ends when its pipe does
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(answers)


class _Browser:
    """One connection: commands and their answers, and the events in between."""

    def __init__(self, commands: int, answers: int) -> None:
        self.commands, self.answers = commands, answers
        self.session: str | None = None
        self.events: list[dict[str, Any]] = []
        self.sent = 0
        self.buffer = b""
        self.deadline = time.monotonic() + TIMEOUT

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.sent += 1
        number = self.sent
        message = {"id": number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self.commands, text) :]
        while True:
            found = self._next(self.deadline - time.monotonic())
            if found is None:
                raise TimeoutError(f"{method}: no answer within {TIMEOUT} s")
            if found.get("id") == number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']['message']}")
                return dict(found["result"])

    def evaluate(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return found["result"].get("value")

    def wait_for(self, method: str) -> None:
        while not any(event["method"] == method for event in self.events):
            if self._next(self.deadline - time.monotonic()) is None:
                raise TimeoutError(f"{method} did not come within {TIMEOUT} s")

    def wait_until_quiet(self) -> None:
        """Two frames are drawn, then nothing is reported for a while."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
        while self._next(QUIET) is not None:
            if time.monotonic() > self.deadline:
                raise TimeoutError(f"the page was not quiet within {TIMEOUT} s")

    def _next(self, seconds: float) -> dict[str, Any] | None:
        """The next message, kept if it is an event; None after so many seconds without one."""
        until = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            part = os.read(self.answers, 1 << 20)
            if not part:
                raise RuntimeError("the browser ended early")
            self.buffer += part
        text, _, self.buffer = self.buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message
