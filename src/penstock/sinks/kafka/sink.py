"""The Kafka sink. The client library is imported only where it is used."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from penstock.change import Lane
from penstock.cursor import Watermark
from penstock.errors import SinkRefused
from penstock.settings import settings
from penstock.sink import Assignment, Delivery
from penstock.sinks.kafka import client
from penstock.sinks.kafka.group_watermark import GroupWatermark
from penstock.sinks.kafka.settings import KafkaSettings


@settings
class KafkaSink(KafkaSettings):
    """Sends changes to topics."""

    def open(self, assignment: Assignment) -> Delivery:
        """Start a delivery."""
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
        """The watermark of the lane's group."""
        return GroupWatermark(self, pipeline, lane).peek()

    def release(self, pipeline: str, lanes: Collection[Lane]) -> None:
        """Fence deliveries on these lanes, and delete their groups. A barrier has no groups: the purged rows are its progress."""
        if self.delivery == "barrier":
            return
        # At least once needs no right to do this: nothing was kept.
        ignored = (SinkRefused,) if self.delivery == "at-least-once" else ()
        for lane in lanes:
            with suppress(*ignored):
                GroupWatermark(self, pipeline, lane).strike()
