"""The format `rqlite`: the envelope of rqlite's change data capture, one group for each transaction that has a number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import orjson
import pyarrow as pa

from penstock.formats import Format
from penstock.formats.text import columns, field, quoted, string, untagged

_SHOWN = ("op", "position", "table", "before", "after", "at", "facts", "error", "transaction")
_IDS = ("new_row_id", "old_row_id")  # the facts of sources that the envelope contains
_OPS = {"insert": "INSERT", "update": "UPDATE", "delete": "DELETE", "refresh": "INSERT"}


class RqliteFormat(Format):
    """For existing receivers of rqlite. `pipeline` becomes `node_id`, `service` becomes `service_id`."""

    def texts(self, changes: pa.RecordBatch, previous: int | None) -> Sequence[str | None]:
        """The changes, each as a group of one event; its index is the number of its transaction, or else its position."""
        return [None if op == "schema" else _group(op, row) for op, *row in zip(*columns(changes, *_SHOWN), strict=True)]

    def body(self, texts: Iterable[str]) -> bytes:
        """`{"service_id": ..., "node_id": ..., "payload": [...]}`."""
        service = "" if self.service is None else f'"service_id":{quoted(self.service)},'
        return f'{{{service}"node_id":{quoted(self.pipeline)},"payload":[{",".join(_groups(texts))}]}}'.encode()


def _group(op: str, row: Sequence[Any]) -> str:
    position, table, before, after, at, facts, error, transaction = row
    ids = orjson.loads(facts or "{}")
    return (
        f'{{"index":{position if transaction is None else transaction},"commit_timestamp":{at // 1000},"events":['
        f'{{"op":"{_OPS[op]}","table":{quoted(table)}{"".join(field(name, ids.get(name)) for name in _IDS)}'
        f"{_content(before, after, error)}}}]}}"
    )


def _groups(texts: Iterable[str]) -> Iterator[str]:
    """Consecutive groups with the same index as one group, with the time of the first."""
    for _, same in groupby(texts, _index):
        first, *others = same
        yield first[:-2] + "".join("," + text[text.index("[") + 1 : -2] for text in others) + "]}" if others else first


def _index(text: str) -> str:
    return text[: text.index(",")]


def _content(before: str | None, after: str | None, error: str | None) -> str:
    if error is not None:
        return string("error", error)
    return field("before", before and untagged(before)) + field("after", after and untagged(after))
