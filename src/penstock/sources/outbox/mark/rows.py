"""Rows of the table as changes in Arrow."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.change import NO_CHANGES
from penstock.sources.outbox.mark.table import Row
from penstock.sources.outbox.rows import messages


def to_changes(rows: Sequence[Row]) -> pa.RecordBatch:
    """These rows as changes."""
    if not rows:
        return NO_CHANGES
    ids, positions, topics, keys, values, names, said, at, errors = zip(*rows, strict=True)
    return messages(ids, names, said, {"position": positions, "table": topics, "key": keys, "after": values, "at": at}, errors)
