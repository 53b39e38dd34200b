"""The encodings of changes and marks in Spark: rows for a transform with expressions, otherwise each window as one opaque row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from penstock.change import CHANGES, MESSAGES
from penstock.cursor import Cursor
from penstock.message import documents, is_messages
from penstock.spark import rows
from penstock.spark.outsize import pieces
from penstock.spark.rows import Aside, Mark, Raised

_FACTS = {"lane": pa.string(), "position": pa.int64(), "cursor": pa.string(), "count": pa.int64(), "messages": pa.bool_()}
_BUNDLE = pa.struct(_FACTS | {"changes": pa.binary()})
"""An optional mark, and before it `count` changes of rows, or messages, serialized by Arrow."""

DDL = "lane string, position bigint, cursor string, count bigint, messages boolean, changes binary"

BUNDLE_BYTES = 1 << 20
"""The limit of a bundle, of which Spark holds four copies in memory."""

_ASIDE = -1
_UNMARKED = (None, None, None)
_THIN = (None,) * _BUNDLE.num_fields


def bundles(changes: pa.RecordBatch, mark: Mark | None = None, pad: int = 0) -> pa.RecordBatch:
    """Changes as rows of the stream, followed by the mark, if any.

    A padded bundle fills the batch of Spark, which closes it when it reads the thin row after it. The bytes of the changes come
    last and exceed every buffer on the way, so that none of them remain in one.
    """
    *others, (count, packed) = [(piece.num_rows, piece.serialize().to_pybytes()) for piece in pieces(changes, BUNDLE_BYTES)]
    kind = is_messages(changes)
    marked = (mark.lane, mark.position, mark.cursor) if mark else _UNMARKED
    made = [*((*_UNMARKED, number, kind, some) for number, some in others), (*marked, count, kind, packed.ljust(pad, b"\0"))]
    return pa.RecordBatch.from_struct_array(pa.array([*made, _THIN] if pad else made, _BUNDLE))


def aside(path: str, pad: int) -> pa.RecordBatch:
    """The reference to a change in a file, padded like a bundle."""
    return pa.RecordBatch.from_struct_array(pa.array([(*_UNMARKED, _ASIDE, None, path.encode().ljust(pad, b"\0")), _THIN], _BUNDLE))


def unbundled(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | Mark | Aside]:
    """The runs of changes, references to files and marks of a batch, in order."""
    facts, changes = zip(*(batch.column(name).to_pylist() for name in _FACTS), strict=True), batch.column("changes")
    for index, (lane, position, cursor, count, kind) in enumerate(facts):
        if count == _ASIDE:
            yield Aside(changes[index].as_py().rstrip(b"\0").decode())
        elif count:
            yield pa.ipc.read_record_batch(changes[index].as_buffer(), MESSAGES if kind else CHANGES)
        if cursor is not None:
            yield Mark(lane, position, Cursor(cursor))


class Encoding(NamedTuple):
    """The columns of a stream, and the functions that encode and decode it.

    `aside` refers to a change in a file; `seen` are the changes in the form in which their size counts.
    """

    ddl: str
    pack: Callable[[pa.RecordBatch, Mark | None, int], pa.RecordBatch]
    pieces: Callable[[pa.RecordBatch], Iterator[pa.RecordBatch | Mark | Raised | Aside]]
    aside: Callable[[str, int], pa.RecordBatch]
    seen: Callable[[pa.RecordBatch], pa.RecordBatch]


_ROWS = Encoding(rows.DDL, rows.rows, rows.pieces, rows.aside, documents)
_BUNDLES = Encoding(DDL, bundles, unbundled, aside, lambda changes: changes)


def encoding_of(has_sql: bool) -> Encoding:
    """The encoding of a stream with expressions over it, or without."""
    return _ROWS if has_sql else _BUNDLES
