"""A transport of a few lines: a list in memory, and a rule that decides about requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from penstock.delivery.driver import Driver
from penstock.delivery.settings import Batch, Pace
from penstock.delivery.transport import Accepted, Attempt, Deferred, Outcome, Refused
from penstock.retry import Retry
from penstock.settings import settings
from penstock.sink import Assignment, Delivery, Sink

ARRIVED: dict[str, list[int]] = defaultdict(list)
"""The positions that each name has, in the order of arrival."""

Rule = Callable[[list[int], int], Outcome]
"""The outcome of a request with these positions, in its attempt of this number."""


class MemoryTransport:
    """Notes every request, and stores what the rule accepts."""

    def __init__(self, name: str, rule: Rule) -> None:
        self.shown, self.requests, self._rule = f"memory {name}", list[tuple[list[int], int]](), rule
        self._stored = ARRIVED[name]

    def texts(self, changes: pa.RecordBatch, previous: int | None) -> Sequence[str]:
        return [str(position) for position in changes.column(0).to_pylist()]

    def connect(self) -> MemoryTransport:
        return self

    def send(self, changes: Sequence[Any], attempt: Attempt) -> Outcome:
        positions = [int(change.text) for change in changes]
        self.requests.append((positions, attempt.number))
        attempt.under_way()
        outcome = self._rule(positions, attempt.number)
        if isinstance(outcome, Accepted):
            self._stored += [position for position in positions if (position, 0) not in outcome.named]
        return outcome

    def sever_if_late(self) -> None: ...

    def close(self) -> None: ...


DOWN: set[str] = set()
"""The names that take nothing."""

POISON: dict[str, set[int]] = {}
"""The positions that each name refuses."""


def decided(name: str, positions: Sequence[int]) -> Outcome:
    if name in DOWN:
        return Deferred("down")
    return Refused("poison") if POISON.get(name, set()) & set(positions) else Accepted()


@settings
class MemorySink(Sink):
    name: str
    parallel: int = 1
    retry: Retry = Retry(tries="forever", min=timedelta(milliseconds=1), max=timedelta(milliseconds=10))

    def open(self, assignment: Assignment) -> Delivery:
        pace = Pace(Batch(size=3, delay=timedelta(milliseconds=1)), self.parallel, retry=self.retry)
        return Driver(pace, assignment, MemoryTransport(self.name, lambda positions, attempt: decided(self.name, positions)))
