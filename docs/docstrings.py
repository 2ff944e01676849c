"""Docstrings are written for readers of the source; here they are put as the pages want them."""

import re
from typing import Any

from griffe import Extension, Object


class Docstrings(Extension):
    """:math:`...` becomes code, and an example a section of its own."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            text = obj.docstring.value.replace(":math:`", "`")
            obj.docstring.value = re.sub(r"^(\s*)Example:$", r"\1Examples:", text, flags=re.MULTILINE)
