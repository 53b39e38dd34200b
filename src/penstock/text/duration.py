"""Durations as written in a pipeline file: 5ms 1s 2m 3h 7d."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from penstock.settings import Spelled

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPELLING = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")

_LONGEST_DAYS = 36_500
"""A hundred years: clocks and sockets do not support more."""


def parse(text: object) -> timedelta:
    """The duration that a text spells."""
    if isinstance(text, timedelta):
        return text
    found = _SPELLING.fullmatch(text.strip()) if isinstance(text, str) else None
    if not found:
        raise ValueError(f"{text!r} is not a duration: write a number and a unit, such as 5ms, 1s, 2m, 3h or 7d")
    seconds = float(found[1]) * _UNITS[found[2]]
    if seconds > _LONGEST_DAYS * 86400:
        raise ValueError(f"{text!r} is too long: write {_LONGEST_DAYS}d or less")
    return timedelta(seconds=seconds)


def roughly(seconds: float) -> str:
    """A time span in its largest unit: 3 d, 5 h, 2 min, 10 s."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


Duration = Annotated[timedelta, Spelled(parse)]
