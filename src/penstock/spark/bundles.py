"""Changes in bundles, for a transform without expressions: Spark carries each window as one opaque row."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.change import CHANGES, MESSAGES
from penstock.cursor import Cursor
from penstock.message import is_messages
from penstock.spark.outsize import pieces
from penstock.spark.rows import Aside, Mark

BUNDLES = pa.schema(
    [
        pa.field("lane", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("cursor", pa.string()),
        pa.field("count", pa.int64()),
        pa.field("messages", pa.bool_()),
        pa.field("changes", pa.binary()),
    ]
)
"""An optional mark, and before it `count` changes of rows, or messages, serialized by Arrow."""

DDL = "lane string, position bigint, cursor string, count bigint, messages boolean, changes binary"

BUNDLE_BYTES = 1 << 20
"""The limit of a bundle, of which Spark holds four copies in memory."""

_STRUCT = pa.struct(list(BUNDLES))
_FACTS = ("lane", "position", "cursor", "count", "messages")
_ASIDE = -1
_UNMARKED = (None, None, None)
_THIN = (None,) * len(BUNDLES)


def bundles(changes: pa.RecordBatch, mark: Mark | None = None, pad: int = 0) -> pa.RecordBatch:
    """Changes as rows of the stream, followed by the mark, if any.

    A padded bundle fills the batch of Spark, which closes it when it reads the thin row after it. The bytes of the changes come
    last and exceed every buffer on the way, so that none of them remain in one.
    """
    *others, (count, packed) = [(piece.num_rows, piece.serialize().to_pybytes()) for piece in pieces(changes, BUNDLE_BYTES)]
    kind = is_messages(changes)
    marked = (mark.lane, mark.position, mark.cursor) if mark else _UNMARKED
    rows = [*((*_UNMARKED, number, kind, some) for number, some in others), (*marked, count, kind, packed.ljust(pad, b"\0"))]
    return pa.RecordBatch.from_struct_array(pa.array([*rows, _THIN] if pad else rows, _STRUCT))


def aside(path: str, pad: int) -> pa.RecordBatch:
    """The reference to a change in a file, padded like a bundle."""
    return pa.RecordBatch.from_struct_array(pa.array([(*_UNMARKED, _ASIDE, None, path.encode().ljust(pad, b"\0")), _THIN], _STRUCT))


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
