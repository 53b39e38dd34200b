"""Sizes as written in a pipeline file: 512KB 8MB 1GiB."""

from __future__ import annotations

import re
from typing import Annotated

from penstock.settings import Spelled

MIB, GIB = 2**20, 2**30

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SPELLING = re.compile(rf"(\d{{1,12}})\s*({'|'.join(_UNITS)})")


class Bytes(int):
    """A number of bytes, which prints in the largest unit that divides it."""

    def __str__(self) -> str:
        unit, size = next((unit, size) for unit, size in reversed(_UNITS.items()) if self >= size and self % size == 0)
        return f"{self // size}{unit}"


def parse(text: object) -> Bytes:
    """The size that a text spells."""
    if isinstance(text, Bytes):
        return text
    found = _SPELLING.fullmatch(text.strip()) if isinstance(text, str) else None
    if not found or not int(found[1]):
        raise ValueError(f"{text!r} is not a size: write a number from 1 on and a unit, such as 512KB, 8MB or 1GiB")
    return Bytes(int(found[1]) * _UNITS[found[2]])


LEAST_HEAP = Bytes(512 * MIB)
"""Spark refuses to start with less than 450 MiB, and a JVM does not count all of its heap."""

_HEAP = re.compile(r"(\d{1,9})([mg])", re.IGNORECASE)


def parse_heap(text: object) -> Bytes:
    """The size of a heap, also in the spelling of Java and Spark: 512m 2g."""
    found = _HEAP.fullmatch(text.strip()) if isinstance(text, str) else None
    try:
        size = Bytes(int(found[1]) * (GIB if found[2] in "gG" else MIB)) if found else parse(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a size: write a number from 1 on and a unit, such as 512m, 2g or 2GiB") from None
    if size < LEAST_HEAP:
        raise ValueError(f"{text} is less than {LEAST_HEAP}, and Spark does not start with less")
    return size


Size = Annotated[Bytes, Spelled(parse)]
Heap = Annotated[Bytes, Spelled(parse_heap)]
