"""Rows of an outbox as changes in Arrow, with every byte kept."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
import pyarrow as pa

from penstock.change import MESSAGES, NO_CHANGES, Op
from penstock.sources.one_lane import batch_of
from penstock.text.size import MIB

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
    times = [since + _SINCE_1970 for since in struct.unpack(f"!{len(at)}q", b"".join(at))]
    columns = {"position": range(after + 1, after + 1 + len(rows)), "table": topics, "key": keys, "after": values}
    return messages(ids, names, said, columns | {"at": times, "transaction": xids})


def messages(
    ids: Sequence[int],
    names: Sequence[Sequence[str] | None],
    said: Sequence[Sequence[Any] | None],
    columns: dict[str, Any],
    errors: Sequence[str | None] = (),
) -> pa.RecordBatch:
    """Rows of an outbox as messages: their ids, header keys and values, further columns, and errors if there are any."""
    ops = [Op.DELETE.value if value is None else Op.INSERT.value for value in columns["after"]]
    columns |= {"op": ops, "facts": [f'{{"new_row_id":{row}}}' for row in ids]}
    if any(names) or any(said) or any(errors):
        pairs = zip(errors or [None] * len(ids), names, said, strict=True)
        columns["error"] = [error or unequal(len(keys or ()), len(given or ())) for error, keys, given in pairs]
        columns["headers"] = [list(zip(keys or (), given or (), strict=False)) for keys, given in zip(names, said, strict=True)]
    return batch_of(MESSAGES, columns, len(ids))


def row_of(facts: str | None) -> int:
    """The row id in these facts."""
    row: int = orjson.loads(facts or "{}")["new_row_id"]
    return row


def unequal(names: int, said: int) -> str | None:
    """The error of a row whose numbers of header keys and values differ."""
    return None if names == said else f"unequal number of header keys ({names}) and values ({said})"
