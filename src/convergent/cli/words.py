"""Text of users and files on a terminal: as it is, on one line, and never as markup or control codes."""

from __future__ import annotations

from rich.markup import escape
from rich.text import Text


def printable(text: str) -> str:
    """With escapes in the place of line breaks, control codes and bytes that are no UTF-8."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def escaped(text: str) -> str:
    """For a place in a string with markup."""
    return escape(printable(text))


def plain(text: str, style: str = "") -> Text:
    """For rich: brackets and colons in it mean nothing."""
    return Text(printable(text), style=style)
