"""Rows of an outbox as changes in Arrow, with every byte kept."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from penstock.change import CHANGES, NO_CHANGES, Op
from penstock.message import body_text, key_text

COLUMNS = "id, xid::text::bigint, topic, key, value, header_keys, header_values, created_at"
Row = tuple[int, int, str, bytes | None, bytes | None, list[str] | None, list[bytes | None] | None, int]

_SINCE_1970 = (datetime(2000, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days * 86_400_000_000
_TIME = struct.Struct("!q")
_FOREVER = (1 << 63) - 1


def teach(cursor: Any) -> None:
    """Let a cursor give times as microseconds since 1970, without an object for each."""
    from psycopg.adapt import Loader
    from psycopg.pq import Format

    class Microseconds(Loader):
        """From Postgres' binary form: microseconds since 2000."""

        format = Format.BINARY

        def load(self, data: Any) -> int:
            """The moment; infinity is the last one there is."""
            made: int = _TIME.unpack(data)[0]
            return made + _SINCE_1970 if abs(made) < _FOREVER - _SINCE_1970 else _FOREVER - _SINCE_1970

    cursor.adapters.register_loader("timestamptz", Microseconds)


def to_changes(rows: Sequence[Row], after: int) -> pa.RecordBatch:
    """These rows as changes, at the positions behind this one."""
    if not rows:
        return NO_CHANGES
    ids, xids, topics, keys, values, names, said, at = zip(*rows, strict=True)
    bodies = [_body(*of_row) for of_row in zip(values, names, said, strict=True)]
    gone = [value is None for value in values]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(after + 1, after + 1 + len(rows)), pa.int64()),
            pa.array([Op.DELETE.value if is_gone else Op.INSERT.value for is_gone in gone], pa.string()),
            pa.array(topics, pa.string()),
            pa.array(list(map(key_text, keys)), pa.string()),
            pa.array([body if is_gone else None for body, is_gone in zip(bodies, gone, strict=True)], pa.string()),
            pa.array([None if is_gone else body for body, is_gone in zip(bodies, gone, strict=True)], pa.string()),
            pa.array(at, pa.int64()).cast(CHANGES.field("at").type),
            pa.nulls(len(rows), pa.int64()),
            pa.array(ids, pa.int64()),
            pa.array([_error(*of_row) for of_row in zip(names, said, strict=True)], pa.string()),
            pa.array(xids, pa.int64()),
            pa.nulls(len(rows), pa.int64()),
        ],
        schema=CHANGES,
    )


def _body(value: bytes | None, names: list[str] | None, said: list[bytes | None] | None) -> str:
    return body_text(value, list(zip(names, said, strict=False)) if names and said else ())


def _error(names: list[str] | None, said: list[bytes | None] | None) -> str | None:
    keys, values = len(names or ()), len(said or ())
    return None if keys == values else f"unequal number of header keys ({keys}) and values ({values})"
