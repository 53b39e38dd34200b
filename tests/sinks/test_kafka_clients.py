"""No error of a request keeps its client alive for longer than who asked: the library's thread must not be the last to hold it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from deadline import PATIENCE
from penstock.change import Lane
from penstock.coordinators.kafka import topics
from penstock.coordinators.kafka.address import Address
from penstock.coordinators.kafka.client import Ear
from penstock.errors import PenstockError
from penstock.kafka.answer import answered
from penstock.sinks.kafka import group_watermark
from penstock.sinks.kafka.group_watermark import GroupWatermark
from penstock.sinks.kafka.sink import KafkaSink
from servers.broker import Broker


class Watch:
    """Sees every client that is asked for something, and holds its futures, as the library's thread does."""

    def __init__(self) -> None:
        self.asked: list[weakref.ref[Any]] = []
        self.futures: list[Future[Any]] = []

    def over(self, call: Callable[..., dict[Any, Future[Any]]]) -> Callable[..., dict[Any, Future[Any]]]:
        def watched(client: Any, *arguments: Any, **more: Any) -> dict[Any, Future[Any]]:
            self.asked.append(weakref.ref(client))
            futures = call(client, *arguments, **more)
            self.futures += futures.values()
            return futures

        return watched

    def assert_let_go(self) -> None:
        assert [future for future in self.futures if future.exception()], "nothing was refused"
        assert [client() for client in self.asked] == [None] * len(self.asked)


@pytest.fixture
def watch(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    monkeypatch.setattr(group_watermark, "PATIENCE", PATIENCE)
    for name in ("create_topics", "delete_consumer_groups", "delete_records"):
        monkeypatch.setattr(AdminClient, name, watch.over(getattr(AdminClient, name)))
    return watch


def test_a_progress_topic_that_is_there_already(broker: Broker, watch: Watch) -> None:
    name = broker.create(partitions=16)
    sink = KafkaSink(config={"bootstrap.servers": broker.servers}, progress_topic=name)
    GroupWatermark(sink, "nobody", Lane("main")).prepare()
    watch.assert_let_go()


def test_a_lane_that_was_never_delivered_on(broker: Broker, watch: Watch) -> None:
    sink = KafkaSink(config={"bootstrap.servers": broker.servers})
    GroupWatermark(sink, "nobody-ever", Lane("main")).strike()
    watch.assert_let_go()


def test_a_state_whose_records_cannot_be_deleted(broker: Broker, watch: Watch) -> None:
    place = Address(broker.servers, broker.create(partitions=1), "nowhere", deadline=PATIENCE)

    def delete() -> None:
        with suppress(PenstockError):
            topics.delete_before(topics.admin(place, Ear(place)), place, Ear(place), 1000)

    delete()
    watch.assert_let_go()


def test_an_answer_is_handed_on() -> None:
    future: Future[int] = Future()
    future.set_result(3)
    assert answered(future) == 3
