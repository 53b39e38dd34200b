"""What any sink must keep true, over every sink there is."""

import json
import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from deadline import PATIENCE
from memory_sink import ARRIVED, MemorySink
from penstock.change import Change, Lane, Op, last_place, to_batch
from penstock.cursor import Cursor, Watermark
from penstock.delivery.settings import Batch
from penstock.retry import Retry
from penstock.sink import Assignment, Delivery, Sink, TransactionalDelivery
from penstock.sinks.discard.sink import DiscardSink
from penstock.sinks.kafka import group_watermark, transactional
from penstock.sinks.kafka.sink import KafkaSink
from penstock.sinks.webhook.sink import WebhookSink
from penstock.testing.receiver import Receiver
from servers.broker import Broker


@dataclass
class Rig:
    """A sink, and what its far side has; None where a far side keeps nothing."""

    sink: Sink
    arrived: Callable[[], list[int]] | None
    pipeline: str = "orders"

    def open(self, previous: int | None = None) -> Delivery:
        opened = self._open(previous)
        return Marked(opened) if self.sink.keeps_watermark else opened

    def _open(self, previous: int | None) -> Delivery:
        return self.sink.open(Assignment(self.pipeline, Lane("main"), 1, 0, "cafe", previous, lambda event: None))


@dataclass
class Marked:
    """A delivery with a mark behind whatever is offered, as a source would give it."""

    inner: TransactionalDelivery

    def offer(self, changes: pa.RecordBatch, wait: float) -> bool:
        is_taken = self.inner.offer(changes, wait)
        if is_taken and changes.num_rows:
            position = last_place(changes)[0]
            self.inner.mark(Watermark(Cursor(f'{{"at":{position}}}'), position, position))
        return is_taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


KAFKA = ["kafka, at least once", "kafka, exactly once"]
PARALLEL = ["webhook, four requests at a time", "webhook, four requests at a time, that fails half the time"]


def kafka(broker: Broker, delivery: str) -> Rig:
    topic = broker.create(partitions=2)
    sink = KafkaSink(config={"bootstrap.servers": broker.servers}, topic=topic, delivery=delivery)
    return Rig(sink, lambda: [json.loads(record.value)["position"] for record in broker.records(topic)], pipeline=topic)


MEMORY = {"transport in memory": 1, "transport in memory, four requests at a time": 4}


@pytest.fixture(params=["discard", *MEMORY, "webhook", "webhook that fails half the time", *PARALLEL, *KAFKA])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    if request.param in KAFKA:
        patch, delivery = request.getfixturevalue("monkeypatch"), request.param.removeprefix("kafka, ").replace(" ", "-")
        for module, limit in ((transactional, "STUCK_SECONDS"), (transactional, "STALL_SECONDS"), (group_watermark, "PATIENCE")):
            patch.setattr(module, limit, PATIENCE)
        yield kafka(request.getfixturevalue("broker"), delivery)
        return
    if request.param in MEMORY:
        name = uuid4().hex
        yield Rig(MemorySink(name=name, parallel=MEMORY[request.param]), lambda: list(ARRIVED[name]))
        return
    if request.param == "discard":
        yield Rig(DiscardSink(), None)
        return
    with Receiver(seed=random.randrange(1000)) as receiver:
        if "fails" in request.param:
            receiver.turn(fail_rate=0.2, lose_rate=0.2, cut_rate=0.1)
        retry = Retry(tries="forever", min=timedelta(milliseconds=1), max=timedelta(milliseconds=2))
        batch, parallel = Batch(size=3, delay=timedelta(milliseconds=1)), 4 if request.param in PARALLEL else 1
        yield Rig(
            WebhookSink(url=receiver.url, batch=batch, retry=retry, parallel=parallel, timeout=timedelta(days=1)),
            lambda: [change["position"] for change in receiver.changes()],
        )


KEYS = 10


def changes(*positions: int) -> list[Change]:
    rows = [(p, f'"id":{p % KEYS}') for p in positions]
    return [Change(p, Op.UPDATE, "t", f"{{{key}}}", f'{{{key},"a":1}}', f'{{{key},"a":2}}', p * 1000) for p, key in rows]


def rows(*positions: int):
    return to_batch(changes(*positions))


def of_each_key(positions: list[int]) -> list[list[int]]:
    return [[position for position in positions if position % KEYS == key] for key in range(KEYS)]


def assert_all_came_in_order(rig: Rig, positions: range) -> None:
    """All of them, and first deliveries in order per key."""
    firsts = list(dict.fromkeys(rig.arrived()))
    assert sorted(firsts) == list(positions)
    assert sorted(firsts, key=lambda p: p % KEYS) == sorted(positions, key=lambda p: (p % KEYS, p))


def test_settings_can_be_pickled_and_still_deliver(rig):
    sink = pickle.loads(pickle.dumps(rig.sink))
    assert sink == rig.sink
    with closing(Rig(sink, rig.arrived).open()) as delivery:
        assert delivery.offer(rows(1), wait=PATIENCE)
        assert delivery.drain(PATIENCE)


def test_nothing_is_delivered_before_anything_was_offered(rig):
    with closing(rig.open()) as delivery:
        assert delivery.delivered() is None
        assert delivery.drain(PATIENCE)


def test_after_draining_the_last_change_offered_is_delivered_and_comes_back_whole(rig):
    with closing(rig.open()) as delivery:
        assert delivery.offer(rows(1, 2, 3, 4, 5), wait=PATIENCE)
        assert delivery.drain(PATIENCE)
        assert delivery.delivered() == changes(5)[0]


def test_first_deliveries_happen_in_the_order_offered_per_key_and_all_arrive(rig):
    with closing(rig.open()) as delivery:
        for start in range(1, 50, 7):
            assert delivery.offer(rows(*range(start, start + 7)), wait=PATIENCE)
        assert delivery.drain(PATIENCE)
        if rig.arrived:
            assert_all_came_in_order(rig, range(1, 50))


def test_delivered_moves_forward_only_and_never_ahead_of_the_far_side(rig):
    seen = [0]
    with closing(rig.open()) as delivery:
        for position in range(1, 60):
            assert delivery.offer(rows(position), wait=PATIENCE)
            change = delivery.delivered()
            seen.append(change.position if change else 0)
            if rig.arrived and change and seen[-1] != seen[-2]:
                assert set(range(1, change.position + 1)) <= set(rig.arrived())
        assert delivery.drain(PATIENCE)
    assert seen == sorted(seen)


def test_an_empty_offer_is_taken_and_changes_nothing(rig):
    with closing(rig.open()) as delivery:
        assert delivery.offer(rows(), wait=PATIENCE)
        assert delivery.drain(PATIENCE)
        assert delivery.delivered() is None
        assert delivery.offer(rows(1), wait=PATIENCE)
        assert delivery.offer(rows(), wait=PATIENCE)
        assert delivery.drain(PATIENCE)
        assert delivery.delivered().position == 1


def test_one_offer_may_be_larger_than_any_buffer(rig):
    with closing(rig.open()) as delivery:
        assert delivery.offer(rows(*range(1, 2001)), wait=PATIENCE)
        assert delivery.drain(PATIENCE)
        assert delivery.delivered().position == 2000


def test_batches_may_have_columns_behind_those_of_changes(rig):
    batch = rows(1, 2)
    with closing(rig.open()) as delivery:
        assert delivery.offer(batch.append_column("more", batch.column(0)), wait=PATIENCE)
        assert delivery.drain(PATIENCE)
        assert delivery.delivered().position == 2


def test_after_closing_nothing_more_arrives_and_delivered_still_answers(rig):
    delivery = rig.open()
    delivery.offer(rows(*range(1, 40)), wait=PATIENCE)
    delivery.close()
    change = delivery.delivered()
    if rig.arrived:
        arrived = rig.arrived()
        assert set(arrived) >= set(range(1, change.position + 1 if change else 1))
        assert len(set(arrived)) < 39 or change.position == 39
        with closing(rig.open(change.position if change else None)) as successor:
            start = change.position + 1 if change else 1
            assert successor.offer(rows(*range(start, 41)), wait=PATIENCE)
            assert successor.drain(PATIENCE)
        for before, now in zip(of_each_key(arrived), of_each_key(rig.arrived()), strict=True):
            assert now[: len(before)] == before
        assert_all_came_in_order(rig, range(1, 41))


def test_closing_twice_is_closing_once(rig):
    delivery = rig.open()
    delivery.close()
    delivery.close()
