"""Pieces of JSON text for formats."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import pyarrow as pa

from penstock.change import listed
from penstock.message import documents

# Inside a JSON string a quotation mark is always escaped, and one that ends a string is never followed by `$`: this matches only
# the value of a column, whatever texts and column names contain.
_TAG = re.compile(r':(\s*)\{"\$(blob|real)":\s*"([^"]*)"\s*\}')
_INFINITIES = {"inf": "Infinity", "-inf": "-Infinity"}


def columns(changes: pa.RecordBatch, *names: str) -> list[list[Any]]:
    """Columns of a batch as lists, times in microseconds: faster than an object for each change. Messages become documents."""
    shown = documents(changes)
    return [listed(shown.column(name)) for name in names]


@lru_cache(maxsize=256)
def quoted(text: str) -> str:
    """A JSON string. Cached, since the same few table names occur again and again."""
    return json.dumps(text, ensure_ascii=False)


def field(name: str, value: object) -> str:
    """A further field of an object, from JSON text or a number; empty without a value."""
    return "" if value is None else f',"{name}":{value}'


def fields(name: str, values: Sequence[object]) -> list[str]:
    """The same for many values, in less time."""
    if values.count(None) == len(values):
        return [""] * len(values)
    return ["" if value is None else f',"{name}":{value}' for value in values]


def spelled(spell: Callable[[Any], str], values: Sequence[Any]) -> list[str | None]:
    """The spelling of each value; None stays None. Each distinct value is spelled once: there are few of them."""
    known = {value: None if value is None else spell(value) for value in set(values)}
    return list(map(known.__getitem__, values))


def string(name: str, text: str | None) -> str:
    """A further field with a string."""
    return field(name, None if text is None else quoted(text))


def instant(at: int) -> str:
    """Microseconds since 1970 as a date, to the millisecond: 2026-01-01T00:00:00.000Z."""
    return f"{_second(at // 1_000_000)}.{at // 1000 % 1000:03d}Z"


@lru_cache(maxsize=256)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()


def untagged(image: str) -> str:
    """An image with blobs as plain base64 and infinities as strings; every other byte is unchanged."""
    return _TAG.sub(_untag, image) if '{"$' in image else image


def _untag(tag: re.Match[str]) -> str:
    space, kind, value = tag.groups()
    return f':{space}"{_INFINITIES[value] if kind == "real" else value}"'
