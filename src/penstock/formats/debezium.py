"""The format `debezium`: Debezium's envelopes without schemas, as an array."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from penstock.formats import Format
from penstock.formats.text import columns, field, quoted, string, untagged

_SHOWN = ("position", "op", "table", "key", "before", "after", "at", "error", "transaction", "ordinal")
_OPS = {"insert": "c", "update": "u", "delete": "d", "refresh": "r"}


class DebeziumFormat(Format):
    """For receivers of the output of Debezium's JSON converter with `schemas.enable=false`."""

    def texts(self, changes: pa.RecordBatch, previous: int | None) -> Sequence[str | None]:
        """The changes, each as an envelope."""
        rows = columns(changes, *_SHOWN)
        opening = f'"source":{{"version":"{version("penstock")}","connector":"penstock","name":{quoted(self.pipeline)}'
        return [
            None if op == "schema" else _envelope(opening, prior, (position, op, *row))
            for prior, (position, op, *row) in zip([previous, *rows[0]], zip(*rows, strict=True), strict=False)
        ]


def _envelope(opening: str, prior: int | None, row: tuple[Any, ...]) -> str:
    position, op, table, key, before, after, at, error, transaction, ordinal = row
    is_snapshot, at = "true" if op == "refresh" else "false", at // 1000
    return (
        f'{{"before":{_image(before)},"after":{_image(after)},{opening},"ts_ms":{at},"snapshot":"{is_snapshot}",'
        f'"table":{quoted(table)},"key":{untagged(key)},"position":{position},"previous":{"null" if prior is None else prior}'
        f'{field("ordinal", ordinal)}{field("txId", transaction)}{string("error", error)}}},"op":"{_OPS[op]}","ts_ms":{at}}}'
    )


def _image(image: str | None) -> str:
    return "null" if image is None else untagged(image)
