"""Foreign text for a terminal: no character of it moves the cursor, is invisible or looks like another."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_SELECTORS = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
"""Invisible, although Unicode classes both as letters and marks."""


def printable(text: str) -> str:
    r"""This text on one line, with escapes such as `\x1b` for controls, bidirectional controls and invisible characters."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(one.encode("unicode_escape").decode() if _is_hidden(one) else one for one in text)


def as_json(value: Any, separators: tuple[str, str] | None = None) -> str:
    """JSON on one line, in printable ASCII: `json.dumps` does not escape DEL."""
    return json.dumps(value, separators=separators).replace("\x7f", r"\u007f")


def _is_hidden(character: str) -> bool:
    if not character.isprintable():
        return unicodedata.category(character) != "Zs"  # spaces of other widths are plain text
    return character in _BLANK or any(first <= ord(character) <= last for first, last in _SELECTORS)
