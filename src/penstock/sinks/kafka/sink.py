"""The settings of a Kafka sink."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext, suppress
from dataclasses import field
from datetime import timedelta
from typing import Literal

from penstock.change import Lane
from penstock.cursor import Watermark
from penstock.duration import Duration
from penstock.errors import SinkRefused
from penstock.retry import Retry
from penstock.settings import settings
from penstock.sink import Assignment, Delivery
from penstock.sinks.kafka import client, record
from penstock.sinks.kafka.record import Style

_LONGEST = timedelta(seconds=60)


@settings
class KafkaSink:
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
    imports = ("confluent_kafka.admin", "penstock.sinks.kafka.transactional")

    def __post_init__(self) -> None:
        if self.max_in_flight_records < 1:
            raise ValueError("max_in_flight_records must be 1 or more")
        if self.topic is not None:
            record.check(self.topic)
        if not timedelta(0) <= self.interval <= _LONGEST:
            raise ValueError("interval must be from 0ms to 60s")
        record.check(self.progress_topic)
        client.check(self.config)

    @property
    def style(self) -> Style:
        """What records look like."""
        return Style(self.topic, self.key, self.format)

    def open(self, assignment: Assignment) -> Delivery:
        """Start delivering."""
        client.confluent()
        if self.delivery == "at-least-once" or assignment.is_redrive:
            from penstock.sinks.kafka.pipelined import PipelinedDelivery

            return PipelinedDelivery(self, assignment)
        if self.delivery == "barrier":
            from penstock.sinks.kafka.barrier import BarrierDelivery

            return BarrierDelivery(self, assignment)
        from penstock.sinks.kafka.transactional import TransactionalDelivery

        return TransactionalDelivery(self, assignment)

    def watermark(self, pipeline: str, lane: Lane) -> Watermark | None:
        """What the lane's group says; nothing while other deliveries than exactly-once may have gone on without it."""
        from penstock.sinks.kafka.ledger import Ledger

        return Ledger(self, pipeline, lane).peek() if self.delivery == "exactly-once" else None

    def release(self, pipeline: str, lanes: Collection[Lane]) -> None:
        """Fence whoever delivers on these lanes, and delete their groups; where rows are purged, these say what was delivered."""
        if self.delivery == "barrier":
            return
        from penstock.sinks.kafka.ledger import Ledger

        for lane in lanes:
            with suppress(SinkRefused) if self.delivery == "at-least-once" else nullcontext():  # who may not has kept nothing
                Ledger(self, pipeline, lane).strike()
