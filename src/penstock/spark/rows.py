"""Changes and resolved marks as rows of one stream; the schema is written here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.change import CHANGES, Lane, Op
from penstock.cursor import Cursor

ROWS = CHANGES.append(pa.field("mark", pa.string()))
"""A change, or a mark: op `resolved`, its lane in `key`, its cursor in `mark`. Filters let marks pass."""

DDL = (
    "position bigint not null, op string not null, table string, key string, before string, after string, "
    "at timestamp, old_row_id bigint, new_row_id bigint, error string, mark string"
)

NOTHING = pa.RecordBatch.from_pylist([], ROWS)
"""A batch moves on only when its reader gives another one: this is that other one."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Nothing at or below this position is still to come on this lane."""

    lane: Lane
    position: int
    cursor: Cursor


def with_marks(changes: pa.RecordBatch) -> pa.RecordBatch:
    """Changes as rows of the stream."""
    return pa.RecordBatch.from_arrays([*changes.columns, pa.nulls(changes.num_rows, pa.string())], schema=ROWS)


def flush(mark: Mark, pad: int) -> pa.RecordBatch:
    """The mark padded to so many bytes, and a thin one behind it: Spark closes the full batch only when it asks for the next row."""
    fat = mark.cursor.ljust(pad)
    arrays = [pa.array([mark.position, mark.position]), pa.array([Op.RESOLVED.value] * 2), pa.nulls(2, pa.string())]
    arrays += [pa.array([mark.lane, mark.lane]), *(pa.nulls(2, field.type) for field in list(ROWS)[4:-1])]
    return pa.RecordBatch.from_arrays([*arrays, pa.array([fat, None], pa.string())], schema=ROWS)


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | Mark]:
    """The runs of changes and the marks of a batch, in order; thin marks are passed over."""
    begin = 0
    for index in pc.indices_nonzero(pc.equal(batch.column(1), Op.RESOLVED.value)).to_pylist():
        if index > begin:
            yield batch.slice(begin, index - begin)
        if cursor := batch.column(10)[index].as_py():
            yield Mark(batch.column(3)[index].as_py(), batch.column(0)[index].as_py(), Cursor(cursor.rstrip()))
        begin = index + 1
    if begin < batch.num_rows:
        yield batch.slice(begin)
