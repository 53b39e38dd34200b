"""Changes and resolved marks as rows of one stream; the schema is written here and nowhere else."""

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
"""Changes as expressions and sessions of users see them: messages as documents, headers as JSON text."""

ROWS = SHOWN.append(pa.field("mark", pa.string()))
"""A change, or a mark: op `resolved`, its lane in `key`, its cursor in `mark`. Filters let marks pass.

A change that `where` or `select` raised on, and that is to be spared, has the name of that in `mark`.
"""

CHANGE_DDL = (
    "position bigint not null, op string not null, table string, key string, before string, after string, "
    "at timestamp, facts string, error string, transaction bigint, ordinal bigint, "
    "headers string, schema bigint"
)

DDL = f"{CHANGE_DDL}, mark string"

FLUSH_BYTES = 32768
"""Spark closes an Arrow batch at so many bytes: a mark as fat as this pushes everything before it through."""

ROOMY_BYTES = 262144
"""The same in a batch, where no change waits for another one to come."""

ASIDE = "aside"
"""In the place of a table, in a row with the op of a mark."""

_PADDING = "\n"  # behind a cursor, which is one line: to look for the last character that is no space takes ten times as long
_RESOLVED = pa.array([Op.RESOLVED.value] * 2)
_NULLS = {field.name: pa.nulls(2, field.type) for field in ROWS}


@dataclass(frozen=True, slots=True)
class Mark:
    """Nothing at or below this position is still to come on this lane."""

    lane: Lane
    position: int
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Raised:
    """A change that an expression raised on: `where` or `select`."""

    change: Change
    part: str


@dataclass(frozen=True, slots=True)
class Aside:
    """A change that is too large for Spark: the path of a file that has it."""

    path: str

    def take(self) -> Change:
        """Read the change."""
        with pa.OSFile(self.path) as file:
            return last_of(pa.ipc.open_file(file).get_batch(0))

    def done(self) -> None:
        """Remove the file, for which the other half of the task waits."""
        with suppress(FileNotFoundError):  # a later attempt has removed it
            os.unlink(self.path)


def rows(changes: pa.RecordBatch, mark: Mark | None = None, pad: int = 0) -> pa.RecordBatch:
    """Changes as rows of the stream, with a mark behind them where there is one.

    A padded mark fills Spark's batch, and the thin one behind it makes Spark close it, which it does when it asks for one row more.
    One batch for all of it: each one costs Spark a good part of a millisecond. Its last bytes are those of the padded mark,
    more than any buffer on the way holds, so that nothing of it stays behind.
    """
    unmarked = shown(changes).append_column(ROWS.field("mark"), pa.nulls(changes.num_rows, pa.string()))
    return pa.concat_batches([unmarked, _marks(mark, pad)]) if mark else unmarked


def shown(changes: pa.RecordBatch) -> pa.RecordBatch:
    """Changes with the columns of SHOWN."""
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
    # every array with its type: to have it inferred takes longer than all the rest
    positions, lanes = pa.array([mark.position] * 2, pa.int64()), pa.array([mark.lane] * 2, pa.string())
    cursors = pa.array([_padded(mark.cursor, pad) if pad else mark.cursor, None], pa.string())
    columns = _NULLS | {"position": positions, "op": _RESOLVED, "key": lanes, "mark": cursors}
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=ROWS)


def _padded(cursor: Cursor, pad: int) -> str:
    """In eights: Arrow would write what is missing to the next eight by itself, and those few bytes would wait for others."""
    text = f"{cursor}{_PADDING}"
    return text.ljust(max(pad, len(text) + -len(text) % 8))


def aside(path: str, pad: int) -> pa.RecordBatch:
    """The sign of a change that is in a file, padded like a mark; conditions let it pass, since it has the op of one."""
    signs = _marks(Mark(Lane(""), 0, Cursor(path)), pad)
    return signs.set_column(ROWS.get_field_index("table"), ROWS.field("table"), pa.array([ASIDE, None], pa.string()))


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | Mark | Raised | Aside]:
    """The runs of changes, what was raised on or is in a file, and the marks of a batch, in order; thin marks are passed over."""
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
