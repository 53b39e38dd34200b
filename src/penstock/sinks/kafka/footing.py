"""Which partitions know a producer.

Brokers see that a record is missing by its number, but whom they do not know in a partition they believe any number. So until a
producer has had one acknowledgement there, a second record of a key could arrive although the first was refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from penstock.sinks.kafka.record import Record


class Footing:
    """Of one producer; `count` asks the brokers how many partitions a topic has, None if they do not answer."""

    def __init__(self, count: Callable[[str], int | None]) -> None:
        self._count = count
        self._sizes: dict[str, int] = {}
        self._acknowledged: defaultdict[str, set[int]] = defaultdict(set)
        self._is_answering: dict[str, bool] = {}  # topics that something was acknowledged for since they were last asked about
        self._firm_topics: set[str] = set()
        self._firm_keys: set[tuple[str, bytes | None]] = set()
        self._first: dict[tuple[str, bytes | None], bool] = {}  # keys with a record under way, and whether another waits for it

    def holds_back(self, record: Record) -> bool:
        """Whether to wait with this record until the one of its key that is under way is acknowledged."""
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

    def heard(self, record: Record, partition: int | None) -> None:
        """What became of a record: where it is, or None if it failed."""
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
