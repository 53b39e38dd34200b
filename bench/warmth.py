"""A broker that has done all this before: what its compiler has not seen often enough takes several times as long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from bench.consumer import Listening
from servers.broker import Broker

SINGLES, TRANSACTIONS = 20_000, 3_000


@contextmanager
def steady_broker(folder: Path) -> Iterator[Broker]:
    """As in production, with all of its compiler; in tests a broker does not live long enough for that."""
    with Broker(folder, is_brief=False) as broker:
        topic = broker.create(partitions=1)
        with Listening(broker.servers, topic):
            _singles(broker, topic)
            _transactions(broker, topic)
        yield broker


def _singles(broker: Broker, topic: str) -> None:
    """Records one by one."""
    producer = Producer({"bootstrap.servers": broker.servers, "enable.idempotence": True, "linger.ms": 0})
    for _ in range(SINGLES):
        producer.produce(topic, b"warm")
        producer.flush()


def _transactions(broker: Broker, topic: str) -> None:
    """Each of one record."""
    own = {"transactional.id": "warm", "linger.ms": 0, "retry.backoff.ms": 1}
    producer = Producer({"bootstrap.servers": broker.servers, **own})
    producer.init_transactions()
    for _ in range(TRANSACTIONS):
        producer.begin_transaction()
        producer.produce(topic, b"warm")
        producer.commit_transaction()
