from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from threading import Condition
from typing import Any

import pytest

from penstock.change import Lane
from penstock.errors import PenstockError
from penstock.event import Event
from penstock.retry import Retry
from penstock.sink import Assignment
from penstock.sinks.webhook import WebhookSink
from penstock.sinks.webhook.delivery import WebhookDelivery
from penstock.testing.receiver import Receiver


class Told:
    """The events that a delivery told of."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = Condition()

    def __call__(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait(self, count: int, within: float = 10) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.events) >= count, within), f"only {len(self.events)} events"


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def deliver(told: Told) -> Iterator[Callable[..., WebhookDelivery]]:
    """Open a delivery to a URL, with quick retries unless told otherwise."""
    opened: list[WebhookDelivery] = []

    def deliver(url: str, *, previous: int | None = None, **settings: Any) -> WebhookDelivery:
        quick = Retry(tries="forever", min=timedelta(milliseconds=1), max=timedelta(milliseconds=4))
        sink = WebhookSink(url=url, **{"retry": quick, **settings})
        delivery = sink.open(Assignment("orders", Lane("main"), 7, 0, "cafe", previous, told))
        opened.append(delivery)
        return delivery

    yield deliver
    for delivery in opened:
        with suppress(PenstockError):
            delivery.close()
