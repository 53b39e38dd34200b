"""The partitions in which the brokers have registered a producer.

Brokers detect a missing record by its number, but accept any first number of a producer in a partition. Before the first
acknowledgement there, the second record of a key could arrive although the first was refused.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import confluent_kafka as kafka

from penstock.sinks.kafka.record import Record

ANSWER_SECONDS = 0.2


class Footing:
    """A producer, and the partitions that have acknowledged a record of it."""

    def __init__(self, producer: Any) -> None:
        self.producer = producer
        self._sizes: dict[str, int] = {}
        self._acknowledged: defaultdict[str, set[int]] = defaultdict(set)
        self._is_answering: dict[str, bool] = {}  # topics with an acknowledgement since the last count
        self._firm_topics: set[str] = set()
        self._firm_keys: set[tuple[str, bytes | None]] = set()
        self._first: dict[tuple[str, bytes | None], bool] = {}  # keys with a record under way, and whether another waits for it

    def holds_back(self, record: Record) -> bool:
        """Whether this record must wait until the one of its key that is under way is acknowledged."""
        name = record.topic, record.key
        if record.topic in self._firm_topics or name not in self._first or self._is_firm(record.topic):
            return False
        self._first[name] = True
        return True

    def sent(self, record: Record) -> None:
        """A record is under way."""
        name = record.topic, record.key
        if record.topic not in self._firm_topics and name not in self._firm_keys:
            self._first[name] = False

    def reported(self, record: Record, partition: int | None) -> None:
        """The fate of a record: its partition, or None if it failed."""
        if record.topic in self._firm_topics:
            return
        name = record.topic, record.key
        is_awaited = self._first.pop(name, False)
        if partition is not None:
            self._acknowledged[record.topic].add(partition)
            self._is_answering[record.topic] = True
            if is_awaited:
                self._firm_keys.add(name)

    def _is_firm(self, topic: str) -> bool:
        if topic not in self._sizes and self._is_answering.pop(topic, False) and (size := self._count(topic)):
            self._sizes[topic] = size
        if topic in self._sizes and len(self._acknowledged[topic]) >= self._sizes[topic]:
            self._firm_topics.add(topic)
        return topic in self._firm_topics

    def _count(self, topic: str) -> int | None:
        """The number of partitions of a topic; None without an answer."""
        try:
            return len(self.producer.list_topics(topic, ANSWER_SECONDS).topics[topic].partitions)
        except kafka.KafkaException:
            return None
