"""Taking a lane: a transactional producer that has fenced its predecessors, without the half seconds that the library waits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import confluent_kafka as kafka

from penstock.sinks.kafka.group_watermark import PATIENCE, GroupWatermark

IMPATIENT_TRIES = 4
STEP_SECONDS = 0.02


def taken(group: GroupWatermark, settings: Mapping[str, Any]) -> Any:
    """A producer that has the lane: whoever had it before is fenced, and what that had open is aborted.

    While it is aborted, brokers say "not now", and the library would ask again half a second later. A new producer asks at once:
    the one before it is gone by then, and since it was answered, it has nothing under way that could fence its successor.
    """
    for _ in range(IMPATIENT_TRIES):
        if producer := _asked(group, settings, STEP_SECONDS):
            return producer
    return _asked(group, settings, PATIENCE)


def _asked(group: GroupWatermark, settings: Mapping[str, Any], step: float) -> Any:
    """A producer that has the lane; None as soon as it is told "not now"."""
    producer, deadline = kafka.Producer(settings), time.monotonic() + PATIENCE
    try:
        producer.list_topics(group.topic, PATIENCE)  # without a connection it would look for a coordinator half a second later
        while True:
            try:
                producer.init_transactions(step)
            except kafka.KafkaException as error:
                said = error.args[0]
                if not said.retriable() or time.monotonic() > deadline:
                    raise
                if said.code() == kafka.KafkaError.CONCURRENT_TRANSACTIONS:
                    return None
            else:
                return producer
    except kafka.KafkaException as error:
        raise group.ending(error, "taking the lane over", producer) from None
