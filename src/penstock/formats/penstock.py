"""The format `penstock`: images as they were captured, each change with the position before it."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from penstock.formats import Format
from penstock.formats.text import columns, fields, instant, quoted, spelled

_SHOWN = ("position", "op", "table", "key", "before", "after", "at", "error", "transaction", "ordinal", "schema")


class PenstockFormat(Format):
    """Joins existing JSON text; nothing is parsed, so nothing is rounded or reordered."""

    def texts(self, changes: pa.RecordBatch, previous: int | None) -> list[str]:
        """The changes, each as JSON."""
        positions, ops, tables, keys, befores, afters, ats, errors, transactions, ordinals, schemas = columns(changes, *_SHOWN)
        priors = ["null" if previous is None else previous, *positions]
        images = (fields("before", befores), fields("after", afters))
        numbers = (fields("transaction", transactions), fields("ordinal", ordinals), fields("schema", schemas))
        rest = (fields("error", spelled(quoted, errors)), *numbers)
        rows = zip(positions, priors, spelled(quoted, tables), ops, keys, *images, spelled(instant, ats), *rest, strict=False)
        return [
            f'{{"position":{position},"previous":{prior},"table":{table},"op":"{op}","key":{key}{before}{after},"at":"{at}"'
            f"{error}{transaction}{ordinal}{schema}}}"
            for position, prior, table, op, key, before, after, at, error, transaction, ordinal, schema in rows
        ]

    def body(self, texts: Iterable[str]) -> bytes:
        """`{"pipeline": ..., "changes": [...]}`."""
        return f'{{"pipeline":{quoted(self.pipeline)},"changes":[{",".join(texts)}]}}'.encode()
