"""Rows of the table as changes in Arrow."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.change import CHANGES, NO_CHANGES, Op
from penstock.message import body_text, key_text
from penstock.sources.outbox.mark.table import Row, Text
from penstock.sources.outbox.rows import facts_of


def to_changes(rows: Sequence[Row]) -> pa.RecordBatch:
    """These rows as changes."""
    if not rows:
        return NO_CHANGES
    ids, positions, topics, keys, values, _, _, at, _ = zip(*rows, strict=True)
    bodies = [_body(row) for row in rows]
    gone = [value is None for value in values]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(positions, pa.int64()),
            pa.array([Op.DELETE.value if one else Op.INSERT.value for one in gone], pa.string()),
            pa.array(topics, pa.string()),
            pa.array([key_text(_raw(key)) for key in keys], pa.string()),
            pa.array([body if one else None for body, one in zip(bodies, gone, strict=True)], pa.string()),
            pa.array([None if one else body for body, one in zip(bodies, gone, strict=True)], pa.string()),
            pa.array(at, pa.int64()).cast(CHANGES.field("at").type),
            pa.array(map(facts_of, ids), pa.string()),
            pa.array([_error(row) for row in rows], pa.string()),
            pa.nulls(len(rows), pa.int64()),
            pa.nulls(len(rows), pa.int64()),
        ],
        schema=CHANGES,
    )


def _body(row: Row) -> str:
    if not row.names and not row.said:
        return body_text(_raw(row.value), ())
    pairs = zip(row.names or (), row.said or (), strict=False)
    return body_text(_raw(row.value), [(name, _raw(said)) for name, said in pairs])


def _error(row: Row) -> str | None:
    """Why no message can be made of a row: that is the fault of one row, and no other waits for it."""
    names, said = len(row.names or ()), len(row.said or ())
    return row.error if names == said else f"unequal number of header keys ({names}) and values ({said})"


def _raw(text: Text) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
