"""Griffe extension: prepare the docstrings for the API pages.

Docstrings are written to be read in the source; here they become the Markdown that the pages show.
"""

import re
from textwrap import dedent
from typing import Any

from griffe import Extension, Object

SHARED = re.compile(r"^( +)(\w+(?:, \w+)+): (.*(?:\n\1 +.*)*)$", re.MULTILINE)  # several arguments in one line
OTHERS = re.compile(r"^ +\(the others as in (.*)\)$", re.MULTILINE)
FORMULA = re.compile(r"^([ \t]*)\.\. math::(.*(?:\n+\1[ \t]+\S.*)*)$", re.MULTILINE)
INLINE = re.compile(r":math:`([^`]+)`")
LINK = re.compile(r"`([^`<]+) <([^`>]+)>`_")


class Docstrings(Extension):
    """Formulas and links in Markdown, one line for each argument, and examples as a section of their own."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _prepared(obj.docstring.value)


def _prepared(text: str) -> str:
    text = FORMULA.sub(_displayed, text)
    text = INLINE.sub(r"\\(\1\\)", text)
    text = LINK.sub(r"[\1](\2)", text)
    text = re.sub(r"^(\s*)Example:$", r"\1Examples:", text, flags=re.MULTILINE)
    text = SHARED.sub(_one_line_each, text)
    return OTHERS.sub(r"\nThe other arguments are those of \1.", text)


def _displayed(found: re.Match[str]) -> str:
    indent, formula = found.groups()
    lines = dedent(formula).strip().splitlines()
    return "\n".join(f"{indent}{line.strip()}" for line in ("", r"\[", *lines, r"\]", ""))


def _one_line_each(found: re.Match[str]) -> str:
    indent, names, description = found.groups()
    return "\n".join(f"{indent}{name}: {description}" for name in names.split(", "))
