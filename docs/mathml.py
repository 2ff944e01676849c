"""MkDocs hook: turn formulas into MathML, which browsers show without any script or font from elsewhere."""

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

# What pymdownx.arithmatex makes of formulas in Markdown, with generic: true.
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
# A bar is an operator with spaces around it unless it says otherwise.
BAR = re.compile(r'<mo(?: stretchy="false")?>(&#x0007C;|&#x02016;)</mo>')


def on_page_content(content: str, **_: Any) -> str:
    content = BLOCK.sub(lambda found: f'<div class="formula">{_mathml(found[1], "block")}</div>', content)
    return INLINE.sub(lambda found: _mathml(found[1], "inline"), content)


def _mathml(formula: str, display: str) -> str:
    formula = unescape(formula).strip()
    mathml = convert(formula, display=display)
    if "\\" in mathml:  # the converter passes on commands that it does not know
        raise PluginError(f"docs/mathml.py: unknown command in the formula {formula}")
    return BAR.sub(r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>', mathml)
