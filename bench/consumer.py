"""Consumers: which records came, and when."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Mapping
from threading import Event, Thread
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message

PATIENCE = 120.0
EAGER: Mapping[str, Any] = {}
THRIFTY: Mapping[str, Any] = {"fetch.min.bytes": 100_000, "fetch.wait.max.ms": 50}
"""For one that is to take many records and few of the broker's cycles; at most 50 ms late."""


class Consuming:
    """A process of its own that reads a topic from its beginning until so many records have come."""

    def __init__(self, servers: str, topic: str, records: int, settings: Mapping[str, Any] = EAGER) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._answers, answering = spawning.Pipe(duplex=False)
        self._process = spawning.Process(target=_consume, args=(servers, topic, records, answering, settings), daemon=True)
        self._process.start()

    def arrivals(self) -> list[tuple[int, float]]:
        """A number and a time for each; waits for the last one."""
        if not self._answers.poll(PATIENCE):
            self._process.kill()
            raise TimeoutError("the records have not all come")
        found: list[tuple[int, float]] = self._answers.recv()
        self._process.join()
        return found


def _consume(servers: str, topic: str, records: int, answering: Any, settings: Mapping[str, Any]) -> None:
    consumer = _consumer(servers, topic, settings)
    consumer.subscribe([topic])
    found: list[tuple[int, float]] = []
    while len(found) < records:
        for message in _come(consumer):
            if message.error():
                raise KafkaException(message.error())
            found.append((int(message.value()[:10]), time.time()))
    consumer.close()
    answering.send(found)


def _consumer(servers: str, topic: str, settings: Mapping[str, Any]) -> Consumer:
    own = {"group.id": f"bench-{topic}", "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    return Consumer({"bootstrap.servers": servers, **own, **settings})


def _come(consumer: Consumer) -> list[Message]:
    """What has come, as soon as something has: to ask for many with a time limit is to wait until they are many."""
    first = consumer.poll(0.05)
    return [first, *consumer.consume(1000, 0)] if first else []


class Listening:
    """A thread that reads a topic, and notes when records come."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer, self._topic = _consumer(servers, topic, EAGER), topic
        self._times: list[float] = []
        self._is_over = Event()
        self._thread = Thread(target=self._listen, daemon=True)

    def arrivals(self) -> list[float]:
        """When records came, in order."""
        return list(self._times)

    def _listen(self) -> None:
        self._consumer.subscribe([self._topic])
        while not self._is_over.is_set():
            self._times += [time.time() for message in _come(self._consumer) if not message.error()]
        self._consumer.close()

    def __enter__(self) -> Listening:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
