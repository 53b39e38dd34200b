"""A consumer in a process of its own: which records came, and when."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException

PATIENCE = 120.0


class Consuming:
    """Reads a topic from its beginning until so many records have come; `arrivals` has a number and a time for each."""

    def __init__(self, servers: str, topic: str, records: int) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._answers, answering = spawning.Pipe(duplex=False)
        self._process = spawning.Process(target=_consume, args=(servers, topic, records, answering), daemon=True)
        self._process.start()

    def arrivals(self) -> list[tuple[int, float]]:
        """Waits for the last one."""
        if not self._answers.poll(PATIENCE):
            self._process.kill()
            raise TimeoutError("the records have not all come")
        found: list[tuple[int, float]] = self._answers.recv()
        self._process.join()
        return found


def _consume(servers: str, topic: str, records: int, answering: Any) -> None:
    settings = {"group.id": f"bench-{topic}", "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": servers, "fetch.wait.max.ms": 10, **settings})
    consumer.subscribe([topic])
    found: list[tuple[int, float]] = []
    while len(found) < records:
        for message in consumer.consume(1000, 0.005):
            if message.error():
                raise KafkaException(message.error())
            found.append((int(message.value()[:10]), time.time()))
    consumer.close()
    answering.send(found)
