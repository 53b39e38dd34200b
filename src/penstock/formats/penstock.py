"""The format `penstock`: images as they were captured, each change with the position before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from penstock.formats.text import columns, field, instant, quoted, string


@dataclass(frozen=True, slots=True)
class PenstockFormat:
    """Joins the JSON text that is there already; nothing is parsed, so nothing is rounded or reordered."""

    pipeline: str
    content_type = "application/json"

    def texts(self, changes: pa.RecordBatch, previous: int | None) -> list[str]:
        """The changes, each as JSON."""
        rows = columns(changes)
        priors = ["null" if previous is None else previous, *rows[0]]
        return [
            f'{{"position":{position},"previous":{prior},"table":{quoted(table)},"op":"{op}","key":{key}'
            f'{field("before", before)}{field("after", after)},"at":"{instant(at)}"{string("error", error)}'
            f"{field('transaction', transaction)}{field('ordinal', ordinal)}}}"
            for prior, position, op, table, key, before, after, at, _, _, error, transaction, ordinal in zip(
                priors, *rows, strict=False
            )
        ]

    def body(self, texts: Iterable[str]) -> bytes:
        """`{"pipeline": ..., "changes": [...]}`."""
        return f'{{"pipeline":{quoted(self.pipeline)},"changes":[{",".join(texts)}]}}'.encode()
