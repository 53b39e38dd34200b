"""The format `rqlite`: the envelope of rqlite's change data capture, one event in each group."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from penstock.formats.text import columns, field, quoted, string

_OPS = {"insert": "INSERT", "update": "UPDATE", "delete": "DELETE", "refresh": "INSERT"}

# Inside a JSON string a quotation mark is always escaped, and one that ends a string is never followed by `$`: so this is found at
# the value of a column and nowhere else, whatever texts and column names hold.
_TAG = re.compile(r':(\s*)\{"\$(blob|real)":\s*"([^"]*)"\s*\}')
_INFINITIES = {"inf": "Infinity", "-inf": "-Infinity"}


@dataclass(frozen=True, slots=True)
class RqliteFormat:
    """For receivers that were written for rqlite. `node` is what it calls `node_id`."""

    node: str
    service: str | None = None

    def texts(self, changes: pa.RecordBatch, previous: int | None) -> list[str]:
        """The changes, each as a group of one event."""
        return [
            f'{{"index":{position},"commit_timestamp":{at // 1000},"events":[{{"op":"{_OPS[op]}","table":{quoted(table)}'
            f"{field('new_row_id', new)}{field('old_row_id', old)}{_content(before, after, error)}}}]}}"
            for position, op, table, _, before, after, at, old, new, error, _, _ in zip(*columns(changes), strict=True)
        ]

    def body(self, texts: Iterable[str]) -> bytes:
        """`{"service_id": ..., "node_id": ..., "payload": [...]}`."""
        service = "" if self.service is None else f'"service_id":{quoted(self.service)},'
        return f'{{{service}"node_id":{quoted(self.node)},"payload":[{",".join(texts)}]}}'.encode()


def _content(before: str | None, after: str | None, error: str | None) -> str:
    if error is not None:
        return string("error", error)
    return field("before", before and untagged(before)) + field("after", after and untagged(after))


def untagged(image: str) -> str:
    """An image with blobs as plain base64 and infinities as strings; every other byte stays as it is."""
    return _TAG.sub(_untag, image) if '{"$' in image else image


def _untag(tag: re.Match[str]) -> str:
    space, kind, value = tag.groups()
    return f':{space}"{_INFINITIES[value] if kind == "real" else value}"'
