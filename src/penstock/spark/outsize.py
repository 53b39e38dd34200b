"""Batches of changes cut to the size that Spark can carry, and changes above the limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.change import BYTES, Change, described, last_of
from penstock.errors import RowTooLarge
from penstock.text.size import LEAST_HEAP, MIB, Bytes
from penstock.transform.function import way_on

HEAP_PER_ROW = 16
"""A row may take one sixteenth of the heap, which holds several copies of it and other rows."""

PIECE_BYTES = 4 * MIB
"""The limit of an Arrow batch of several changes."""


@dataclass(frozen=True, slots=True)
class Outsize:
    """One change above a limit: a batch of one row."""

    row: pa.RecordBatch

    @property
    def change(self) -> Change:
        """The change itself."""
        return last_of(self.row)


def cut(changes: pa.RecordBatch, limit: int | None) -> Iterator[pa.RecordBatch | Outsize]:
    """Changes in pieces, in order; at least one piece, which may be empty."""
    start = 0
    for index in _above(changes, limit):
        if index > start:
            yield from pieces(changes.slice(start, index - start))
        yield Outsize(changes.slice(index, 1))
        start = index + 1
    if start < changes.num_rows or not start:
        yield from pieces(changes.slice(start) if start else changes)


def pieces(changes: pa.RecordBatch, most: int = PIECE_BYTES) -> Iterator[pa.RecordBatch]:
    """Changes in batches of at most `most` bytes, or of one row."""
    half = changes.num_rows // 2
    if half and changes.nbytes > most:
        yield from pieces(changes.slice(0, half), most)
        yield from pieces(changes.slice(half), most)
    else:
        yield changes


def _above(changes: pa.RecordBatch, limit: int | None) -> list[int]:
    """The indexes of changes above a limit."""
    if limit is None or changes.nbytes <= limit:
        return []
    import pyarrow.compute as pc

    lengths = [pc.fill_null(pc.binary_length(changes.column(name)), 0).cast(pa.int64()) for name in BYTES]
    sizes = pc.add(pc.add(lengths[0], lengths[1]), lengths[2])
    found: list[int] = pc.indices_nonzero(pc.greater(sizes, limit)).to_pylist()
    return found


def size_of(change: Change) -> int:
    """The bytes of a change that count for the limit."""
    texts = (change.key, change.before, change.after)
    return sum(len(text if isinstance(text, bytes) else text.encode()) for text in texts if text)


def refused(change: Change, limit: int | None) -> RowTooLarge:
    """The error of a change above the limit."""
    size = size_of(change)
    heap = size * HEAP_PER_ROW
    memory = f" and spark.memory to {-(-heap // MIB)}m or more" if heap > LEAST_HEAP else ""  # the least heap of a session
    return RowTooLarge(
        f"{described(change)}, has {size} bytes, and source.max_row is {Bytes(limit or 0)}",
        f"set source.max_row to {-(-size // MIB)}MiB{memory}, {way_on(change)}",
    )
