"""The settings of a Kafka sink."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import field
from datetime import timedelta
from typing import Literal

from penstock.retry import Retry
from penstock.settings import refuse, settings
from penstock.sink import TransactionalSink
from penstock.sinks.kafka import client
from penstock.source import Source
from penstock.text.duration import Duration

_LONGEST = timedelta(seconds=60)
ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")
"""A character that the name of a topic cannot have."""


@settings
class KafkaSettings(TransactionalSink):
    """Sends changes to topics. `config` is librdkafka's; `interval` and `progress_topic` are for exactly-once.

    `max_in_flight_records` is for barrier.
    """

    config: Mapping[str, str | int | float | bool] = field(repr=False)
    delivery: Literal["exactly-once", "at-least-once", "barrier"] = "exactly-once"
    topic: str | None = None
    key: Literal["json", "bare"] = "json"
    format: Literal["penstock", "debezium", "cloudevents", "row"] = "penstock"
    interval: Duration = timedelta(milliseconds=5)
    progress_topic: str = "penstock.progress"
    max_in_flight_records: int = 5000
    retry: Retry = Retry()

    def __post_init__(self) -> None:
        refuse(
            self.max_in_flight_records < 1 and "max_in_flight_records must be 1 or more",
            self.topic is not None and _complaint("topic", self.topic, ("pipeline", "table")),
            not timedelta(0) <= self.interval <= _LONGEST and "interval must be from 0ms to 60s",
            _complaint("progress_topic", self.progress_topic),
        )
        client.check(self.config)

    def conflicts(self, source: Source, *, has_function: bool) -> Mapping[tuple[str, ...], str]:
        """A barrier ends when a row is purged: it needs a table that one pipeline reads, and one change for each row."""
        if self.delivery != "barrier":
            return {}
        if not source.row_lease:
            fix = "it is for source.type outbox with reader: mark; use exactly-once or at-least-once here"
            return {("sink", "delivery"): f": barrier purges each message from a table that no other pipeline reads: {fix}"}
        if has_function:
            return {("transform", "function"): "cannot be used with sink.delivery: barrier, which purges a row with its one change"}
        return {}

    @property
    def keeps_watermark(self) -> bool:
        """Not where another kind of delivery may have advanced without it."""
        return self.delivery == "exactly-once"


def _complaint(key: str, topic: str, fields: Collection[str] = ()) -> str | Literal[False]:
    """The complaint about an impossible topic, or about a template with other fields."""
    try:
        made = topic.format(**dict.fromkeys(fields, "x")) if fields else topic
    except (KeyError, IndexError, ValueError, AttributeError):
        return f"{key} is {topic!r}: in addition to plain text it may have {{pipeline}} and {{table}}"
    is_wrong = not made or len(made) > 249 or made in (".", "..") or ILLEGAL.search(made)
    return bool(is_wrong) and f"{key} is {topic!r}: a name has letters, digits and . _ -, at most 249 of them"
