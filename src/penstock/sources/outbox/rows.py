"""Rows of an outbox as changes in Arrow, with every byte kept."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
import pyarrow as pa

from penstock.change import MESSAGES, NO_CHANGES, Op
from penstock.size import MIB

COLUMNS = (
    "id, xid::text::bigint, topic, key, value, header_keys, header_values,"
    " timestamptz_send(greatest('1970-01-01', least(created_at, '9999-12-31')))"
)
"""Times are bytes, all of which are unpacked at once: objects would take as long as all other columns together."""

WEIGHT = "coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + coalesce(pg_column_size(header_values), 0)"
PAGE_BYTES = 8 * MIB  # the size of a page, which has at least one row

Names = list[str] | None
Said = list[bytes | None] | None
Row = tuple[int, int, str, bytes | None, bytes | None, Names, Said, bytes]

_SINCE_1970 = (datetime(2000, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days * 86_400_000_000
"""Microseconds from 1970 to 2000, the epoch of Postgres."""


def to_changes(rows: Sequence[Row], after: int) -> pa.RecordBatch:
    """These rows as changes, at the positions after `after`."""
    if not rows:
        return NO_CHANGES
    ids, xids, topics, keys, values, names, said, at = zip(*rows, strict=True)
    columns = {
        "position": range(after + 1, after + 1 + len(rows)),
        "op": ops_of(values),
        "table": topics,
        "key": keys,
        "after": values,
        "at": [since + _SINCE_1970 for since in struct.unpack(f"!{len(at)}q", b"".join(at))],
        "facts": map(facts_of, ids),
        "transaction": xids,
    }
    if any(names) or any(said):
        errors = [unequal(len(keys or ()), len(given or ())) for keys, given in zip(names, said, strict=True)]
        columns |= {"error": errors, "headers": list(map(paired, names, said))}
    return batch_of(columns, len(rows))


def batch_of(columns: Mapping[str, Any], rows: int) -> pa.RecordBatch:
    """Messages of these columns; missing columns are null."""
    arrays = [pa.array(columns[one.name], one.type) if one.name in columns else pa.nulls(rows, one.type) for one in MESSAGES]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGES)


def ops_of(values: Sequence[object]) -> list[str]:
    """The op of messages with these values."""
    return [Op.DELETE.value if value is None else Op.INSERT.value for value in values]


def paired(names: Sequence[str] | None, said: Sequence[Any] | None) -> list[tuple[str, Any]]:
    """Header keys and values as pairs, up to the shorter list."""
    return list(zip(names or (), said or (), strict=False))


def facts_of(row: int) -> str:
    """The facts of the change of this row."""
    return f'{{"new_row_id":{row}}}'


def row_of(facts: str | None) -> int:
    """The row id in these facts."""
    row: int = orjson.loads(facts or "{}")["new_row_id"]
    return row


def unequal(names: int, said: int) -> str | None:
    """The error of a row whose numbers of header keys and values differ."""
    return None if names == said else f"unequal number of header keys ({names}) and values ({said})"
