"""Taking a lane: a transactional producer that has fenced its predecessors, without the library's waits of half a second."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka as kafka

from penstock.sinks.kafka.group_watermark import PATIENCE, GroupWatermark

IMPATIENT_TRIES = 4
STEP_SECONDS = 0.02


def taken(group: GroupWatermark) -> Any:
    """A producer that has the lane: its predecessors are fenced, and their open transactions aborted.

    During such an abort brokers answer "concurrent transactions", and the library would retry half a second later. A new producer
    asks at once: the one before it is gone by then, and since it had its answer, it has no request that could fence its successor.
    """
    for _ in range(IMPATIENT_TRIES):
        if producer := _asked(group, STEP_SECONDS):
            return producer
    return _asked(group, PATIENCE)


def _asked(group: GroupWatermark, step: float) -> Any:
    """A producer that has the lane; None at the answer "concurrent transactions"."""
    producer, deadline = kafka.Producer(group.producer_settings()), time.monotonic() + PATIENCE
    try:
        producer.list_topics(group.topic, PATIENCE)  # without a connection the search for a coordinator takes half a second
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
