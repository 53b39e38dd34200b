"""How to make each kind of sink, and what its destination has. A new sink adds a rig, and a class to test_sink.py."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from facts import facts
from memory_sink import ARRIVED, DOWN, POISON, MemorySink
from penstock.change import Change
from penstock.delivery.settings import Batch
from penstock.retry import Retry
from penstock.sink import Assignment, Sink
from penstock.sinks.discard.sink import DiscardSink
from penstock.sinks.kafka.sink import KafkaSink
from penstock.sinks.webhook.sink import WebhookSink
from penstock.source import Span, Stamp
from penstock.sources.outbox.mark.databases import create
from penstock.sources.outbox.mark.source import LANE, MarkSource
from penstock.testing.contract import PoisonRig, RetryRig, SinkRig
from penstock.testing.receiver import Receiver
from servers.broker import Broker

QUICK = Retry(tries="forever", min=timedelta(milliseconds=1), max=timedelta(milliseconds=2))


class DiscardRig(SinkRig):
    def __init__(self) -> None:
        super().__init__(DiscardSink())

    def arrived(self) -> None:
        return None


class MemoryRig(RetryRig, PoisonRig):
    """A transport of a few lines."""

    def __init__(self, parallel: int) -> None:
        self.name = uuid4().hex
        super().__init__(MemorySink(name=self.name, parallel=parallel))

    def arrived(self) -> Sequence[tuple[int, object]]:
        return [(position, str(position)) for position in ARRIVED[self.name]]

    @contextmanager
    def unavailable(self) -> Iterator[None]:
        DOWN.add(self.name)
        yield
        DOWN.remove(self.name)

    def refuse(self, position: int) -> None:
        POISON[self.name] = {position}

    def sink_with(self, retry: Retry) -> Sink:
        return replace(self.sink, retry=retry)


class WebhookRig(RetryRig, PoisonRig):
    def __init__(self, receiver: Receiver, parallel: int, *, fails: bool) -> None:
        self.receiver = receiver
        batch = Batch(size=3, delay=timedelta(milliseconds=1))
        super().__init__(WebhookSink(url=receiver.url, batch=batch, retry=QUICK, parallel=parallel, timeout=timedelta(days=1)))
        receiver.turn(seed=random.randrange(1000), **({"fail_rate": 0.2, "lose_rate": 0.2, "cut_rate": 0.1} if fails else {}))

    def arrived(self) -> Sequence[tuple[int, object]]:
        return [(change["position"], json.dumps(change)) for change in self.receiver.changes()]

    @contextmanager
    def unavailable(self) -> Iterator[None]:
        before = self.receiver.dials
        self.receiver.turn(fail_rate=1.0, lose_rate=0.0, cut_rate=0.0)
        yield
        self.receiver.turn(fail_rate=before.fail_rate, lose_rate=before.lose_rate, cut_rate=before.cut_rate)

    def refuse(self, position: int) -> None:
        self.receiver.turn(poison=f'"position":{position},', statuses=(422,), fail_rate=0.0, lose_rate=0.0, cut_rate=0.0)

    def sink_with(self, retry: Retry) -> Sink:
        return replace(self.sink, retry=retry)


class KafkaRig(SinkRig):
    def __init__(self, broker: Broker, delivery: str) -> None:
        self.broker, self.topic = broker, broker.create(partitions=2)
        super().__init__(KafkaSink(config={"bootstrap.servers": broker.servers}, topic=self.topic, delivery=delivery))

    def arrived(self) -> Sequence[tuple[int, object]]:
        records = [record.value or b"" for record in self.broker.records(self.topic)]
        return [(json.loads(value)["position"], value) for value in records]

    def assignment(self) -> Assignment:
        return replace(super().assignment(), pipeline=self.topic)


class BarrierRig(KafkaRig):
    """Rows of a table that one pipeline has for itself: row n is leased for change n, by each attempt anew."""

    ROWS = 2000

    def __init__(self, broker: Broker, folder: Path) -> None:
        super().__init__(broker, "barrier")
        database = str(folder / "app.db")
        self.source = MarkSource(database=database)
        create(database, "outbox")
        with sqlite3.connect(database) as writer:
            rows = [(number,) for number in range(1, self.ROWS + 1)]
            writer.executemany("insert into outbox (id, kafka_topic, kafka_key, kafka_value) values (?, 't', 'k', 'v')", rows)
        writer.close()

    def assignment(self) -> Assignment:
        given = super().assignment()
        stamp = Stamp(given.epoch, given.attempt)
        span = Span(LANE, self.source.begin(LANE, "beginning"), self.source.row_lease.target(LANE))
        for _ in self.source.read(span, stamp):
            continue
        return replace(given, row_lease=self.source.row_lease.open(stamp))

    def changes(self, positions: Sequence[int]) -> list[Change]:
        return [change.replace(facts=facts(None, change.position)) for change in super().changes(positions)]
