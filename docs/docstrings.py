"""Docstrings are written for readers of the source; here they are put as the pages want them."""

import re
from typing import Any

from griffe import Extension, Object

TOGETHER = re.compile(r"^( +)(\w+(?:, \w+)+): (.*(?:\n\1 +.*)*)$", re.MULTILINE)  # arguments that share their words
OTHERS = re.compile(r"^ +\(the others as in (.*)\)$", re.MULTILINE)


class Docstrings(Extension):
    """:math:`...` becomes code, an example a section of its own, and every argument has a line."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            text = obj.docstring.value.replace(":math:`", "`")
            text = re.sub(r"^(\s*)Example:$", r"\1Examples:", text, flags=re.MULTILINE)
            obj.docstring.value = OTHERS.sub(r"\nThe others as in \1.", TOGETHER.sub(_apart, text))


def _apart(found: re.Match[str]) -> str:
    indent, names, words = found.groups()
    return "\n".join(f"{indent}{name}: {words}" for name in names.split(", "))
