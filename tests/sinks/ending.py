"""The ends of deliveries and of requests, decided by the test instead of the time that passes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Thread

from deadline import PATIENCE, until
from penstock.delivery.driver import Driver


class Clock:
    """The time of requests: it runs on, and can be stepped."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._ahead

    def step(self, by: timedelta) -> None:
        self._ahead += by.total_seconds()


@contextmanager
def ending(delivery: Driver) -> Iterator[Thread]:
    """The thread that closes a delivery, from the moment that no further request is sent; it has to end."""
    closer = Thread(target=delivery.close, daemon=True)
    closer.start()
    until(lambda: delivery._queue.is_ending)
    yield closer
    closer.join(PATIENCE)
    assert not closer.is_alive()
