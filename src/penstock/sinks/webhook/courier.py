"""Carries batches over one line, one after the other, until each is taken or all is at an end."""

from __future__ import annotations

import random
from itertools import count
from threading import Thread

from penstock.errors import DeliveryExhausted
from penstock.event import DeliveryRetried
from penstock.failpoint import reach
from penstock.retry import Retry
from penstock.sink import Assignment
from penstock.sinks.webhook.dispatch import Dispatch
from penstock.sinks.webhook.line import Answer, Line
from penstock.sinks.webhook.parcel import Packer, Parcel


class Courier(Thread):
    """A thread with a line of its own."""

    def __init__(self, line: Line, packer: Packer, dispatch: Dispatch, retry: Retry, assignment: Assignment) -> None:
        super().__init__(name="webhook", daemon=True)
        self.line, self._packer, self._dispatch, self._retry, self._assignment = line, packer, dispatch, retry, assignment

    def run(self) -> None:
        """Send batches until the end."""
        try:
            while (batch := self._dispatch.cut()) and self._send(self._packer.pack(batch)):
                self._dispatch.settle(batch)
        except BaseException as failure:  # noqa: BLE001 - a thread's last words: every later call of its owner raises them
            self._dispatch.fail(failure)

    def _send(self, parcel: Parcel) -> bool:
        """Try until it is taken; False when the end came first."""
        failures = 0
        for attempt in count(1):
            reach("sink.sending")
            if self._dispatch.is_ending:
                break
            answer = self.line.post(parcel.body, parcel.numbered(attempt))
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
        reason = f"{self.line.shown}: {answer.reason}"
        if self._retry.is_spent(failures):
            raise DeliveryExhausted(f"{reason}; changes {parcel.span} were not taken in {failures} tries")
        wait = self._retry.wait(failures, random.random(), answer.retry_after)
        told = DeliveryRetried(pipeline=self._assignment.pipeline, reason=reason, tries=failures, wait_seconds=round(wait, 3))
        self._assignment.tell(told)
        self._dispatch.rest(wait)
