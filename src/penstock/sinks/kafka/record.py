"""Changes as records: topic, key, value and headers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson
import pyarrow as pa

from penstock.change import Change, Op, from_batch
from penstock.formats.named import FORMATS
from penstock.message import of_change
from penstock.sink import Assignment
from penstock.sinks.kafka.settings import ILLEGAL, KafkaSettings

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """The record of a change."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Unfit(NamedTuple):
    """The reason why a change has no valid record."""

    reason: str


Made = tuple[Change, Record | Unfit | None]  # a change and its record; None where the format has no record for it


class Recorder:
    """Makes the records of one assignment. Messages of an outbox keep their bytes; rows get the format."""

    def __init__(self, sink: KafkaSettings, assignment: Assignment) -> None:
        self._sink, self._pipeline, self._previous = sink, assignment.pipeline, assignment.previous
        self._has_messages = assignment.has_messages
        self._format = None if sink.format == "row" else FORMATS[sink.format](assignment.pipeline, assignment.incarnation)
        self._epoch = ("penstock-epoch", str(assignment.epoch).encode())

    def records(self, changes: pa.RecordBatch) -> list[Made]:
        """The changes, each with its record."""
        several = list(from_batch(changes))
        made = [self._of_message(change) if change.is_message or self._has_messages else None for change in several]
        if any(record is None for record in made):
            rows = self._of_rows(changes, several)
            made = [record or row for record, row in zip(made, rows, strict=True)]
        if several:
            self._previous = several[-1].position
        return list(zip(several, made, strict=True))

    def _of_message(self, change: Change) -> Record | Unfit | None:
        try:
            message = of_change(change)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            return Unfit(f"its message cannot be read: {error}")
        if change.error:
            return Unfit(change.error)
        if message is None:
            return None
        topic, key, value, headers = message
        return Record(topic if self._sink.topic is None else self._named(self._sink.topic, topic), key, value, list(headers))

    def _of_rows(self, changes: pa.RecordBatch, several: Sequence[Change]) -> list[Record | None]:
        template = self._sink.topic or "{pipeline}.{table}"
        texts = self._format.texts(changes, self._previous) if self._format else [_row(change) for change in several]
        is_plain = self._format is None
        return [
            None
            if change.op == Op.SCHEMA and (is_plain or text is None)
            else Record(
                self._named(template, change.table),
                self._key(change),
                None if text is None else text.encode(),
                [("penstock-position", _place(change).encode()), ("penstock-op", change.op.encode()), self._epoch],
            )
            for change, text in zip(several, texts, strict=True)
        ]

    def _named(self, template: str, table: str) -> str:
        return ILLEGAL.sub("_", template.format(pipeline=self._pipeline, table=table))

    def _key(self, change: Change) -> bytes:
        if self._sink.key == "json":
            return change.key_text.encode()
        parts = list(orjson.loads(change.key_text).values())
        return str(parts[0]).encode() if len(parts) == 1 and isinstance(parts[0], str | int) else orjson.dumps(parts)


def _place(change: Change) -> str:
    return str(change.position) if change.ordinal is None else f"{change.position}.{change.ordinal}"


def _row(change: Change) -> str | None:
    """The present row; None after its deletion."""
    assert not isinstance(change.after, bytes), "a message has its record already"
    return None if change.op == Op.DELETE else change.after
