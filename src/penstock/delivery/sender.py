"""Sends batches over one connection, one after the other, until each change is accepted or condemned, or the delivery ends."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import NamedTuple

from penstock.delivery.bisection import Bisection, Fault, Part
from penstock.delivery.queue import Queue
from penstock.delivery.settlement import Failure, Settlement, meant
from penstock.delivery.transport import Accepted, Attempt, Deferred, Refused, Transport
from penstock.failpoint import reach
from penstock.retry import Retry
from penstock.sink import Assignment

FAR_SECONDS = 0.002  # with a longer answer time, even a batch whose poison is all named is set aside
UNCERTAIN_SECONDS = 0.01  # between two checks whether the claim is confirmed


class Equipment(NamedTuple):
    """The common parts of all senders of a delivery. `in_order`: the destination refuses changes after a gap."""

    shown: str
    queue: Queue
    retry: Retry
    assignment: Assignment
    in_order: bool = False


Case = tuple[Bisection, Failure | None]  # a batch, and the failure that began its bisection


def batches(equipment: Equipment) -> Iterator[Case]:
    """The batches of the queue, each as it becomes due."""
    while batch := equipment.queue.cut():
        yield Bisection(batch, equipment.retry.is_spent, in_order=equipment.in_order), None


class Sender(Thread):
    """A thread with a connection of its own, which settles cases. `take_over`: whether another sender continues a bisection."""

    def __init__(
        self,
        transport: Transport,
        equipment: Equipment,
        cases: Iterator[Case],
        take_over: Callable[[Bisection, Failure], bool] | None = None,
    ) -> None:
        super().__init__(name="delivery", daemon=True)
        self._shown, self._queue, self._retry, self._assignment, _ = equipment
        self.transport, self._cases, self._take_over, self._seconds = transport, cases, take_over, 0.0
        self._settlement = Settlement(self._shown, self._queue, self._retry, self._assignment.poison)

    def run(self) -> None:
        """Send batches until the end."""
        try:
            while (case := next(self._cases, None)) and self._carry(*case):
                continue
        except BaseException as failure:  # noqa: BLE001 - every later call of the owner raises the failure of the thread
            self._queue.fail(failure)

    def _carry(self, bisection: Bisection, failure: Failure | None) -> bool:
        """Try until everything is settled, or another sender continues; False if the delivery ended first."""
        while bisection.parts:
            reach("sink.sending")
            if not self._may_send():
                break
            taken = self._queue.requests_taken
            if more := self._queue.more() if bisection.wants_more(taken) else []:
                bisection.add(self._queue.with_rows(more))
            elif part := bisection.next(taken):
                failure = self._try(bisection, part) or failure
                if failure and self._gives_away(bisection, failure):
                    return True
            elif failure:
                self._rest(failure, max(part.failures for part in bisection.parts))
                bisection.again()
        self._settlement.carry_out()
        return not bisection.parts

    def _may_send(self) -> bool:
        """Wait while the claim on the lane is not confirmed: a suspended process may have a successor."""
        while not self._queue.is_ending and not self._assignment.is_current():
            self._queue.rest(UNCERTAIN_SECONDS)
        return not self._queue.is_ending

    def _gives_away(self, bisection: Bisection, failure: Failure) -> bool:
        """Whether another sender continues; not if the destination may be in trouble, since everything waits then."""
        is_far = failure.is_named and self._seconds > FAR_SECONDS
        if self._take_over is None or len(bisection.parts) < (1 if is_far else 2) or bisection.is_in_doubt:
            return False
        if self._settlement.fault(failure) is not Fault.CERTAIN:
            return False
        self._settlement.carry_out()
        for part in bisection.parts:
            part.changes = self._queue.with_rows(part.changes)
        return self._take_over(bisection, failure)

    def _try(self, bisection: Bisection, part: Part) -> Failure | None:
        """Send the changes that do not wait for a dead letter; return the failure, if there was one."""
        if not self._settlement.sift(bisection, part):
            return None
        part.attempts += 1
        part.sent_at, began = self._queue.requests_taken, time.monotonic()
        self._settlement.begin()
        outcome = self.transport.send(part.changes, Attempt(part.attempts, self._settlement.carry_out))
        self._settlement.carry_out()  # unless the transport has called it
        self._seconds = time.monotonic() - began
        outcome = meant(outcome, part.changes, halts=self._settlement.halts)
        if isinstance(outcome, Accepted):
            self._settlement.accept(bisection, part, outcome)
            return None
        part.is_refused = part.is_refused and outcome.is_certain
        match outcome:
            case Refused(is_too_large=True, named=named) if len(part.changes) > 1 and not named:
                self._split(bisection, part, outcome)
            case Deferred(is_free=True):
                pass
            case _:
                failure = Failure(outcome, not self._settlement.was_believed)
                self._settlement.fail(bisection, part, failure)
                return failure
        return None

    def _split(self, bisection: Bisection, part: Part, refused: Refused) -> None:
        self._queue.shrink(sum(change.bytes for change in part.changes))
        part.changes = self._queue.with_rows(part.changes)
        bisection.split(part)
        self._assignment.retried(f"{self._shown}: {refused.reason}; the batch goes in halves", part.failures, 0.0)

    def _rest(self, failure: Failure, failures: int) -> None:
        """Wait before the next try."""
        wait = self._retry.wait(failures, random.random(), failure.outcome.after)
        self._assignment.retried(f"{self._shown}: {failure.outcome.reason}", failures, wait)
        self._queue.rest(wait)
