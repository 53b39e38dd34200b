"""Rows of an outbox as changes in Arrow, with every byte kept."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime

import orjson
import pyarrow as pa

from penstock.change import CHANGES, NO_CHANGES, Op
from penstock.message import body_text, key_text
from penstock.size import MIB

COLUMNS = (
    "id, xid::text::bigint, topic, key, value, header_keys, header_values,"
    " timestamptz_send(greatest('1970-01-01', least(created_at, '9999-12-31')))"
)
"""Times come as bytes, which are unpacked all at once: an object for each would take as long as everything else."""

WEIGHT = "coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + coalesce(pg_column_size(header_values), 0)"
PAGE_BYTES = 8 * MIB
"""About so much is read at a time, and at least one row."""

Names = list[str] | None
Said = list[bytes | None] | None
Row = tuple[int, int, str, bytes | None, bytes | None, Names, Said, bytes]

_INSERT = pa.scalar(Op.INSERT.value)
_SINCE_1970 = (datetime(2000, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days * 86_400_000_000
"""Microseconds until the moment from which Postgres counts them."""


def to_changes(rows: Sequence[Row], after: int) -> pa.RecordBatch:
    """These rows as changes, at the positions behind this one."""
    if not rows:
        return NO_CHANGES
    ids, xids, topics, keys, values, names, said, at = zip(*rows, strict=True)
    none, bodies = pa.nulls(len(rows), pa.string()), _bodies(values, names, said)
    ops, before, images = pa.repeat(_INSERT, len(rows)), none, pa.array(bodies, pa.string())
    if None in values:
        ops = pa.array([Op.DELETE.value if value is None else Op.INSERT.value for value in values])
        before = pa.array([body if value is None else None for body, value in zip(bodies, values, strict=True)], pa.string())
        images = pa.array([None if value is None else body for body, value in zip(bodies, values, strict=True)], pa.string())
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(after + 1, after + 1 + len(rows)), pa.int64()),
            ops,
            pa.array(topics, pa.string()),
            pa.array(list(map(key_text, keys)), pa.string()),
            before,
            images,
            _times(at),
            pa.array(map(facts_of, ids), pa.string()),
            _errors(names, said) if any(names) or any(said) else none,
            pa.array(xids, pa.int64()),
            pa.nulls(len(rows), pa.int64()),
        ],
        schema=CHANGES,
    )


def facts_of(row: int) -> str:
    """The facts of a change that was made of this row."""
    return f'{{"new_row_id":{row}}}'


def row_of(facts: str | None) -> int:
    """The row that these facts name."""
    row: int = orjson.loads(facts or "{}")["new_row_id"]
    return row


def _times(at: Sequence[bytes]) -> pa.Array:
    made = struct.unpack(f"!{len(at)}q", b"".join(at))
    return pa.array([since + _SINCE_1970 for since in made], CHANGES.field("at").type)


def _bodies(values: Sequence[bytes | None], names: Sequence[Names], said: Sequence[Said]) -> list[str]:
    if not any(names):
        return [body_text(value, ()) for value in values]
    pairs = [list(zip(keys or (), told or (), strict=False)) for keys, told in zip(names, said, strict=True)]
    return list(map(body_text, values, pairs))


def _errors(names: Sequence[Names], said: Sequence[Said]) -> pa.Array:
    counts = [(len(keys or ()), len(told or ())) for keys, told in zip(names, said, strict=True)]
    return pa.array([None if a == b else f"unequal number of header keys ({a}) and values ({b})" for a, b in counts], pa.string())
