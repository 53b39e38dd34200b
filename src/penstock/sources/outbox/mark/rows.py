"""Rows of the table as changes in Arrow."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.change import NO_CHANGES
from penstock.sources.outbox.mark.table import Row
from penstock.sources.outbox.rows import batch_of, facts_of, ops_of, paired, unequal


def to_changes(rows: Sequence[Row]) -> pa.RecordBatch:
    """These rows as changes."""
    if not rows:
        return NO_CHANGES
    ids, positions, topics, keys, values, names, said, at, _ = zip(*rows, strict=True)
    columns = {
        "position": positions,
        "op": ops_of(values),
        "table": topics,
        "key": keys,
        "after": values,
        "at": at,
        "facts": map(facts_of, ids),
        "error": [row.error or unequal(len(row.names or ()), len(row.said or ())) for row in rows],
    }
    if any(names) or any(said):
        columns["headers"] = list(map(paired, names, said))
    return batch_of(columns, len(rows))
