"""Log rows as changes: key, before and after as JSON text, with every value of SQLite kept exactly. Pure.

A value that JSON cannot express is an object with one `$` name: {"$blob": base64}, {"$real": "inf"}, {"$text": base64} for text
that is not UTF-8.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, cast

import orjson
import pyarrow as pa

from penstock.change import NO_CHANGES, Change, of_values
from penstock.sources.sqlite.schema import matcher
from penstock.sources.sqlite.shape import Shape

Row = tuple[Any, ...]
Maker = Callable[[Row], str]

COLUMNS = "seq, shape, op, cast(round((at - 2440587.5) * 86400000.0) as integer) * 1000, tx, old_row_id, new_row_id"
"""The first columns of every row; the values of the images follow."""

_REST = (None, None, None)  # ordinal, headers, schema
_INFINITIES = frozenset({math.inf, -math.inf})

SEQ, SHAPE, OP, AT, TX, OLD, NEW, VALUES = range(8)


class NotUtf8(bytes):
    """A value of type text that is not UTF-8."""


def text_or_bytes(raw: bytes) -> str | NotUtf8:
    """The text, or its bytes if it is not UTF-8, for `text_factory`."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return NotUtf8(raw)


class Makers(NamedTuple):
    """Functions that make the JSON of an event."""

    key: Maker
    before: Callable[[Row], str | None]
    after: Callable[[Row], str | None]
    facts: Callable[[Row], str | None]


@dataclass(frozen=True, slots=True)
class Choice:
    """The columns of images: the key and those whose whole `table.column` matches, or none."""

    columns: str | None = None
    row_ids_only: bool = False

    def of(self, shape: Shape) -> list[str]:
        """The columns of the images of this shape."""
        if self.row_ids_only:
            return []
        is_chosen = matcher("columns", self.columns)
        return [name for name in shape.columns if name in shape.key or is_chosen(f"{shape.table}.{name}")]


EVERYTHING = Choice()


@dataclass(frozen=True, slots=True)
class Imager:
    """The makers of one shape, by op; `shown` are the columns of keys and images."""

    shape: Shape
    makers: Mapping[str, Makers]
    shown: frozenset[str]


@cache
def imager(shape: Shape, choice: Choice = EVERYTHING) -> Imager:
    """The makers of a shape."""
    first = {name: VALUES + i for i, name in enumerate(shape.columns)}
    second = {name: place + len(shape.columns) for name, place in first.items()}
    chosen = choice.of(shape)

    def image(places: Mapping[str, int]) -> Callable[[Row], str | None]:
        return _nothing if choice.row_ids_only else _maker({name: places[name] for name in chosen}, shape.reals)

    def key(places: Mapping[str, int], row_id: int) -> Maker:
        return _maker({name: places[name] for name in shape.key} or {str(shape.row_id): row_id}, shape.reals)

    facts_of_update = _row_ids if shape.key and chosen else partial(_with_old_key, key(first, OLD))
    makers = {
        "insert": Makers(key(first, NEW), _nothing, image(first), _row_ids),
        "update": Makers(key(second, NEW), image(first), image(second), facts_of_update),
        "delete": Makers(key(first, OLD), image(first), _nothing, _row_ids),
        "refresh": Makers(key(first, NEW), _nothing, image(first), _row_ids),
        "schema": Makers(lambda row: "{}", lambda row: row[VALUES], lambda row: row[VALUES + 1], _nothing),
    }
    return Imager(shape, makers, frozenset({*shape.key, *chosen}))


def change_at(row: Row, imagers: Mapping[int, Imager]) -> Change:
    """The change of a log row without images, for its checksum; a row that is no change has no key."""
    found = imagers.get(row[SHAPE])
    table = found or imagers.get(-(row[SHAPE] or 0))
    key = found.makers[row[OP]].key(row) if found else ""
    return Change(row[SEQ], row[OP], table.shape.table if table else "", key, at=row[AT])


def to_changes(rows: Sequence[Row], imagers: Mapping[int, Imager], *, is_doubtful: bool) -> pa.RecordBatch:
    """These rows as changes; `is_doubtful`: some text may not be UTF-8."""
    if not rows:
        return NO_CHANGES
    values = []
    for row in rows:
        reader = imagers[row[SHAPE]]
        key, before, after, facts = reader.makers[row[OP]]
        seq, _, op, at, transaction = row[:OLD]
        error = _error(row, reader) if is_doubtful else None
        values.append((seq, op, reader.shape.table, key(row), before(row), after(row), at, facts(row), error, transaction, *_REST))
    return of_values(values)


def _error(row: Row, reader: Imager) -> str | None:
    shape = reader.shape
    bad = [i for i, value in enumerate(row[VALUES:]) if isinstance(value, NotUtf8)]
    names = dict.fromkeys(shape.columns[i % len(shape.columns)] for i in bad)
    return "; ".join(f"{shape.table}.{name} is not valid UTF-8" for name in names if name in reader.shown) or None


def _row_ids(row: Row) -> str | None:
    """The row ids of both sides; None for a table without row ids."""
    old, new = row[OLD], row[NEW]
    if old is None:
        return None if new is None else f'{{"new_row_id":{new}}}'
    return f'{{"old_row_id":{old}}}' if new is None else f'{{"new_row_id":{new},"old_row_id":{old}}}'


def _with_old_key(old_key: Maker, row: Row) -> str:
    """The row ids, and the old key of an update whose images lack it."""
    ids = _row_ids(row)
    return f'{{"old_key":{old_key(row)}}}' if ids is None else f'{ids[:-1]},"old_key":{old_key(row)}}}'


def _nothing(row: Row) -> None:
    """A side that an event does not have."""


def _maker(places: Mapping[str, int], reals: Container[str]) -> Maker:
    """A function from a log row to a JSON object of these places; `reals` may have infinities, which orjson writes as null."""
    image = "{" + ", ".join(f"{name!r}: row[{place}]" for name, place in places.items()) + "}"
    infinite = [f"row[{place}] in infinities" for name, place in places.items() if name in reals]
    values = f"finite({image}) if {' or '.join(infinite)} else {image}" if infinite else image
    # Compiled once per shape, which is twice as fast as dict(zip(names, values)). Decoded at once: thousands of live buffers of
    # orjson make malloc eight times slower.
    return cast(Maker, eval(f"lambda row: dumps({values}, tagged).decode()", dict(_TOOLS)))


def _finite(values: Mapping[str, object]) -> dict[str, object]:
    return {name: {"$real": str(value)} if value in _INFINITIES else value for name, value in values.items()}


def _tagged(value: object) -> dict[str, str]:
    assert isinstance(value, bytes)  # of the five types of SQLite, JSON has four
    return {"$text" if isinstance(value, NotUtf8) else "$blob": b64encode(value).decode()}


_TOOLS = {"dumps": orjson.dumps, "tagged": _tagged, "finite": _finite, "infinities": _INFINITIES}
