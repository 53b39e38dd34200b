"""Changes and marks as rows of one stream, and its schema."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.change import CHANGES, Change, Lane, Op, last_of, listed
from penstock.cursor import Cursor
from penstock.message import documents, headers_of, headers_text

SHOWN = pa.schema([field.with_type(pa.string()) if field.name == "headers" else field for field in CHANGES])
"""The columns of changes for expressions and sessions of users: messages as documents, headers as JSON text."""

ROWS = SHOWN.append(pa.field("mark", pa.string()))
"""A change, or a mark with op `resolved`, its lane in `key` and its cursor in `mark`, which passes every filter.

In a change on which `where` or `select` raised, and which is spared, `mark` has that name.
"""

CHANGE_DDL = (
    "position bigint not null, op string not null, table string, key string, before string, after string, "
    "at timestamp, facts string, error string, transaction bigint, ordinal bigint, "
    "headers string, schema bigint"
)

DDL = f"{CHANGE_DDL}, mark string"

FLUSH_BYTES = 32768
"""The size at which Spark closes an Arrow batch: a mark of this size pushes all rows before it through."""

ROOMY_BYTES = 262144
"""The size in a batch, where no change waits for later ones."""

ASIDE = "aside"
"""The table of a row that refers to a change in a file; its op is that of a mark."""

_PADDING = "\n"  # after a cursor, which is one line: to strip spaces takes ten times as long
_RESOLVED = pa.array([Op.RESOLVED.value] * 2)
_NULLS = {field.name: pa.nulls(2, field.type) for field in ROWS}


@dataclass(frozen=True, slots=True)
class Mark:
    """No change at or below this position is still to come on this lane."""

    lane: Lane
    position: int
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Raised:
    """A change on which `where` or `select` raised."""

    change: Change
    part: str


@dataclass(frozen=True, slots=True)
class Aside:
    """The path of a file with a change that is too large for Spark."""

    path: str

    def take(self) -> Change:
        """Read the change."""
        with pa.OSFile(self.path) as file:
            return last_of(pa.ipc.open_file(file).get_batch(0))

    def done(self) -> None:
        """Remove the file, for which the reader waits."""
        with suppress(FileNotFoundError):  # a later attempt removed it
            os.unlink(self.path)


def rows(changes: pa.RecordBatch, mark: Mark | None = None, pad: int = 0) -> pa.RecordBatch:
    """Changes as rows of the stream, followed by the mark, if any, in one batch, since each costs Spark part of a millisecond.

    A padded mark fills the batch of Spark, which closes it when it reads the thin mark after it. The padding comes last and
    exceeds every buffer on the way, so that no bytes remain in one.
    """
    unmarked = shown(changes).append_column(ROWS.field("mark"), pa.nulls(changes.num_rows, pa.string()))
    return pa.concat_batches([unmarked, _marks(mark, pad)]) if mark else unmarked


def shown(changes: pa.RecordBatch) -> pa.RecordBatch:
    """Changes as rows with the columns of SHOWN."""
    found = documents(changes)
    return _with_headers(found, SHOWN, [headers_text(pairs) if pairs else None for pairs in listed(found.column("headers"))])


def hidden(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The changes of rows with the columns of SHOWN."""
    return _with_headers(rows, CHANGES, list(map(headers_of, listed(rows.column("headers")))))


def _with_headers(rows: pa.RecordBatch, schema: pa.Schema, headers: Sequence[Any]) -> pa.RecordBatch:
    field = schema.field("headers")
    column = pa.array(headers, field.type) if any(headers) else pa.nulls(len(headers), field.type)
    return rows.set_column(schema.get_field_index("headers"), field, column)


def _marks(mark: Mark, pad: int) -> pa.RecordBatch:
    # each array with its type: to infer it takes longer than all other steps
    positions, lanes = pa.array([mark.position] * 2, pa.int64()), pa.array([mark.lane] * 2, pa.string())
    cursors = pa.array([_padded(mark.cursor, pad) if pad else mark.cursor, None], pa.string())
    columns = _NULLS | {"position": positions, "op": _RESOLVED, "key": lanes, "mark": cursors}
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=ROWS)


def _padded(cursor: Cursor, pad: int) -> str:
    """A cursor padded to a multiple of eight: Arrow would add the missing bytes itself, and they would remain in a buffer."""
    text = f"{cursor}{_PADDING}"
    return text.ljust(max(pad, len(text) + -len(text) % 8))


def aside(path: str, pad: int) -> pa.RecordBatch:
    """The reference to a change in a file, padded like a mark, whose op it has to pass every filter."""
    signs = _marks(Mark(Lane(""), 0, Cursor(path)), pad)
    return signs.set_column(ROWS.get_field_index("table"), ROWS.field("table"), pa.array([ASIDE, None], pa.string()))


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | Mark | Raised | Aside]:
    """The runs of changes, spared changes, references to files and marks of a batch, in order, without thin marks."""
    import pyarrow.compute as pc

    begin, is_mark, marks = 0, pc.equal(batch.column("op"), _RESOLVED[0]), batch.column("mark")
    for index in pc.indices_nonzero(pc.or_(is_mark, pc.is_valid(marks))).to_pylist():
        if index > begin:
            yield hidden(batch.slice(begin, index - begin))
        if not is_mark[index].as_py():
            yield Raised(last_of(hidden(batch.slice(index, 1))), marks[index].as_py())
        elif batch.column("table")[index].as_py() == ASIDE:
            yield Aside(marks[index].as_py().partition(_PADDING)[0])
        elif cursor := marks[index].as_py():
            lane, position = batch.column("key")[index].as_py(), batch.column("position")[index].as_py()
            yield Mark(lane, position, Cursor(cursor.partition(_PADDING)[0]))
        begin = index + 1
    if begin < batch.num_rows:
        yield hidden(batch.slice(begin))
