"""The encodings of changes and marks in Spark: rows for a transform with expressions, otherwise bundles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from penstock.message import documents
from penstock.spark import bundles, rows
from penstock.spark.rows import Aside, Mark, Raised


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
_BUNDLES = Encoding(bundles.DDL, bundles.bundles, bundles.unbundled, bundles.aside, lambda changes: changes)


def encoding_of(has_sql: bool) -> Encoding:
    """The encoding of a stream with expressions over it, or without."""
    return _ROWS if has_sql else _BUNDLES
