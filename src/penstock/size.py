"""Sizes as people write them: 512KB 8MB 1GiB."""

from __future__ import annotations

import re
from typing import Annotated

from penstock.settings import Spelled

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SPELLING = re.compile(rf"(\d{{1,12}})\s*({'|'.join(_UNITS)})")


class Bytes(int):
    """A number of bytes, which prints as a person writes it."""

    def __str__(self) -> str:
        unit, size = next((unit, size) for unit, size in reversed(_UNITS.items()) if self >= size and self % size == 0)
        return f"{self // size}{unit}"


def parse(text: object) -> Bytes:
    """The size that is spelled like this."""
    if isinstance(text, Bytes):
        return text
    found = _SPELLING.fullmatch(text.strip()) if isinstance(text, str) else None
    if not found or not int(found[1]):
        raise ValueError(f"{text!r} is not a size: write a number from 1 on and a unit, such as 512KB, 8MB or 1GiB")
    return Bytes(int(found[1]) * _UNITS[found[2]])


Size = Annotated[Bytes, Spelled(parse)]
