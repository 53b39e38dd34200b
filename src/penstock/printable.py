"""Text from elsewhere as a terminal may show it: no character of it moves the cursor, hides or looks like another."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_SELECTORS = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
"""Both print nothing, though Unicode counts them as letters and marks."""


def printable(text: str) -> str:
    r"""This text on one line, with `\x1b` and the like in place of controls, bidirectional controls and invisible characters."""
    return text if text.isascii() and text.isprintable() else "".join(map(_shown, text))


def as_json(value: Any, separators: tuple[str, str] | None = None) -> str:
    """JSON on one line, in printable ASCII: `json.dumps` leaves DEL as it is."""
    return json.dumps(value, separators=separators).replace("\x7f", r"\u007f")


def _shown(character: str) -> str:
    return character.encode("unicode_escape").decode() if _is_hidden(character) else character


def _is_hidden(character: str) -> bool:
    if not character.isprintable():
        return unicodedata.category(character) != "Zs"  # spaces of other widths are ordinary text
    return character in _BLANK or any(first <= ord(character) <= last for first, last in _SELECTORS)
