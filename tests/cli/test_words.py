from __future__ import annotations

import io

from rich.console import Console

from convergent.cli.words import escaped, plain, printable


def printed(*things) -> str:
    stream = io.StringIO()
    for thing in things:
        Console(file=stream, width=200, emoji=False).print(thing)
    return stream.getvalue()


def test_text_is_on_one_line_and_has_no_controls() -> None:
    assert printable("runs/é, [b]") == "runs/é, [b]"
    assert printable("a\nb\x1b[31m\udcff") == r"a\nb\x1b[31m\udcff"


def test_brackets_and_colons_are_text() -> None:
    path = r"a[/b][red]:smile:\[x]"
    assert printed(plain(path)) == f"{path}\n"
    assert printed(f"[bold]{escaped('[/b]')}[/]") == "[/b]\n"
