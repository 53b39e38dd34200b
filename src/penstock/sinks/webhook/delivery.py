"""A webhook at work on one lane: the caller fills a buffer, one thread cuts batches from it and sends them."""

from __future__ import annotations

import random
import sys
import time
from collections import deque
from collections.abc import Callable
from itertools import count, repeat
from threading import Condition, Thread

import pyarrow as pa

from penstock.change import Change, from_batch, last_place
from penstock.errors import DeliveryExhausted
from penstock.event import DeliveryRetried
from penstock.failpoint import reach
from penstock.sink import Assignment
from penstock.sinks.webhook.cut import due_in
from penstock.sinks.webhook.endpoint import parse
from penstock.sinks.webhook.line import Answer, Line
from penstock.sinks.webhook.parcel import Packer, Parcel, Waiting, places
from penstock.sinks.webhook.sink import WebhookSink

_ROOM_BATCHES = 4
_ROOM_CHANGES = 1000
_SWITCH_SECONDS = 0.0005


class WebhookDelivery:
    """Keeps the promises of Delivery; DESIGN.md numbers the invariants behind them."""

    def __init__(self, sink: WebhookSink, assignment: Assignment) -> None:
        self._sink, self._assignment, self._endpoint = sink, assignment, parse(sink.url)
        self._line = Line(self._endpoint, sink.timeout.total_seconds())
        self._packer = Packer(sink, self._endpoint, assignment)
        self._room = max(_ROOM_CHANGES, _ROOM_BATCHES * sink.batch.size)
        self._previous = assignment.previous
        self._buffer: deque[Waiting] = deque()
        self._taken = self._sent = self._urgent = 0
        self._durable: Waiting | None = None
        self._failure: BaseException | None = None
        self._is_closing = False
        self._changed = Condition()
        # After every answer the sender asks for the interpreter; a busy caller would by default give it away only every 5 ms.
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
        self._sender = Thread(target=self._run, name="webhook", daemon=True)
        self._sender.start()

    def offer(self, changes: pa.RecordBatch, wait: float) -> bool:
        """Take these changes unless the buffer is full."""
        if not self._wait(lambda: len(self._buffer) < self._room, wait):
            return False
        texts = self._packer.format.texts(changes, self._previous)
        self._previous = last_place(changes)[0] if texts else self._previous
        with self._changed:
            was_empty = not self._buffer
            self._buffer.extend(map(Waiting, repeat(time.monotonic()), repeat(changes), count(), places(changes), texts))
            self._taken += len(texts)
            if was_empty or len(self._buffer) >= self._sink.batch.size:
                self._changed.notify_all()
        return True

    def delivered(self) -> Change | None:
        """The last change that a 2xx has answered, also when a later one has failed."""
        self._line.sever_if_late()
        durable = self._durable
        return next(from_batch(durable.offered.slice(durable.row, 1))) if durable else None

    def drain(self, wait: float) -> bool:
        """Send what was taken without further delay, and wait for it."""
        with self._changed:
            self._urgent = self._taken
            self._changed.notify_all()
        return self._wait(lambda: self._sent == self._taken, wait)

    def close(self) -> None:
        """Let the request under way have its time, and stop."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        while self._sender.is_alive():
            self._line.sever_if_late()
            self._sender.join(0.1)
        self._line.close()

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        self._check()
        with self._changed:
            is_met = self._changed.wait_for(lambda: condition() or self._failure is not None, seconds)
        self._check()
        return is_met

    def _check(self) -> None:
        self._line.sever_if_late()
        if self._failure:
            raise self._failure

    def _run(self) -> None:
        try:
            while (changes := self._cut()) and self._send(self._packer.pack(changes)):
                self._settle(changes)
        except BaseException as failure:  # noqa: BLE001 - a thread's last words: every later call of its owner raises them
            with self._changed:
                self._failure = failure
                self._changed.notify_all()

    def _cut(self) -> list[Waiting]:
        """Wait until a batch is due; empty when closing."""
        with self._changed:
            while not self._is_closing:
                due = self._due_in()
                if due == 0:
                    return [self._buffer.popleft() for _ in range(min(len(self._buffer), self._sink.batch.size))]
                self._changed.wait(due)
        return []

    def _due_in(self) -> float | None:
        waited = time.monotonic() - self._buffer[0].since if self._buffer else 0.0
        return due_in(len(self._buffer), waited, self._sink.batch, is_urgent=self._sent < self._urgent)

    def _send(self, parcel: Parcel) -> bool:
        """Try until it is taken; False when closing came first."""
        failures = 0
        for attempt in count(1):
            reach("sink.sending")
            if self._is_closing:
                break
            answer = self._line.post(parcel.body, parcel.numbered(attempt))
            if answer.status is not None:
                reach("sink.sent")
            if answer.is_taken:
                return True
            if not answer.is_stale:
                failures += 1
                self._rest(parcel, answer, failures)
        return False

    def _rest(self, parcel: Parcel, answer: Answer, failures: int) -> None:
        """Wait before the next try, or give up if that was the last."""
        retry, reason = self._sink.retry, f"{self._endpoint.shown}: {answer.reason}"
        if retry.is_spent(failures):
            raise DeliveryExhausted(f"{reason}; changes {parcel.span} were not taken in {failures} tries")
        wait = retry.wait(failures, random.random(), answer.retry_after)
        told = DeliveryRetried(pipeline=self._assignment.pipeline, reason=reason, tries=failures, wait_seconds=round(wait, 3))
        self._assignment.tell(told)
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing, wait)

    def _settle(self, changes: list[Waiting]) -> None:
        with self._changed:
            self._durable = changes[-1]
            self._sent += len(changes)
            if self._sent == self._taken or len(self._buffer) <= self._room // 2:  # not for every little room: waking costs
                self._changed.notify_all()
