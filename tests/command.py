"""The command ``convergent``, run in this process."""

from __future__ import annotations

import contextlib
import io
import json
import sys

import pytest

from convergent.cli import work
from convergent.cli.app import main


def convergent(*arguments: object, width: int = 120) -> tuple[int, str, str]:
    """Exit code, output and errors of one command."""
    said, complained = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        patch.setattr(sys, "argv", ["convergent", *map(str, arguments)])
        patch.setattr(work, "out", work.Console(file=said, width=width))
        patch.setattr(work, "err", work.Console(file=complained, width=width))
        with pytest.raises(SystemExit) as stop:
            main()
    return int(stop.value.code or 0), said.getvalue(), complained.getvalue()


def refused(*arguments: object) -> str:
    """The one line with which a command refuses."""
    code, said, complained = convergent(*arguments)
    assert code == 2, (said, complained)
    assert said == ""
    lines = [line for line in complained.splitlines() if line.startswith("convergent: ")]
    assert len(lines) == 1, complained
    assert "Traceback" not in complained
    return lines[0]


def answered(*arguments: object) -> dict:
    code, said, complained = convergent(*arguments, "--json")
    assert code == 0, complained
    return json.loads(said)
