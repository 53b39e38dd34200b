from collections.abc import Callable
from datetime import timedelta

import pytest

from deadline import PATIENCE
from penstock.change import Change, Lane, Op, to_batch
from penstock.sink import Assignment
from penstock.sinks.webhook.sink import WebhookSink
from penstock.testing.receiver import Receiver
from penstock.testing.request import Request


@pytest.fixture
def receiver_of_format() -> Callable[[str], Request]:
    """The request that a change in this format makes."""

    def received(form: str) -> Request:
        with Receiver() as receiver:
            sink = WebhookSink(url=receiver.url, format=form, timeout=timedelta(days=1))  # type: ignore[arg-type]
            delivery = sink.open(Assignment("orders", Lane("main"), 1, 0, "cafe", None, lambda event: None))
            delivery.offer(to_batch([Change(1, Op.INSERT, "orders", "{}", None, "{}")]), PATIENCE)
            assert delivery.drain(PATIENCE)
            delivery.close()
            return receiver.requests[0]

    return received
