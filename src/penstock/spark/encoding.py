"""How changes and marks travel through Spark: as rows where an expression looks at them, otherwise in bundles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from penstock.message import documents
from penstock.spark import bundles, rows
from penstock.spark.rows import Aside, Mark, Raised


class Encoding(NamedTuple):
    """The columns of a stream for Spark, how changes and a mark become one, and back; `aside` is the sign of a change in a file.

    `seen`: the changes as they are measured before.
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
