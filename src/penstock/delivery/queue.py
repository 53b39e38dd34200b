"""Where the caller and the senders of a delivery meet: a schedule, a lock, and conditions to wait for."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from threading import Condition, Event, Lock

from penstock.change import Change
from penstock.delivery.schedule import Ready, Schedule, Waiting, made
from penstock.delivery.settings import Pace, due_in

_ROOM_BATCHES = 4
_ROOM_CHANGES = 1000
GROWTH = 100
"""Requests that are taken before batches, which were too large, grow again."""


class Queue:
    """The caller puts changes in, senders take batches out and settle them.

    One sender at a time waits for the next batch, so that whatever happens wakes one thread and not all.
    """

    def __init__(self, pace: Pace) -> None:
        self._batch, self._most_aside = pace.batch, pace.bisections
        self._most_bytes, self._taken_since = int(pace.batch.bytes), 0
        batches = _ROOM_BATCHES * pace.batch.size
        self._stock = max(_ROOM_CHANGES, batches)
        reach, is_parallel = self._stock + pace.parallel * pace.batch.size, pace.parallel > 1
        self._schedule = Schedule(reach, is_parallel=is_parallel, reach_aside=batches)
        self._urgent = 0
        self.requests_taken = self.condemned_in_row = 0
        self._failure: BaseException | None = None
        self._lock, self._turn, self._ending = Lock(), Lock(), Event()
        self._progress, self._work = Condition(self._lock), Condition(self._lock)

    # What the caller does.

    def put(self, ready: Ready) -> None:
        """Take these changes; `has_room` was true."""
        with self._lock:
            was_idle = not self._schedule.waiting
            self._schedule.put(ready, time.monotonic())
            if was_idle or self._schedule.waiting >= self._batch.size:
                self._work.notify()

    def has_room(self) -> bool:
        """Whether more may be put in."""
        return self._schedule.taken - self._schedule.durable < self._schedule.reach

    def is_drained(self) -> bool:
        """Whether everything taken is durable."""
        return self._schedule.durable == self._schedule.taken

    def hurry(self) -> None:
        """Send what was taken without further delay."""
        with self._lock:
            self._urgent = self._schedule.taken
            self._work.notify()

    def last(self) -> Change | None:
        """The last change up to which everything is durable."""
        with self._lock:
            return self._schedule.last()

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until this holds, or until the delivery has failed."""
        with self._lock:
            return self._progress.wait_for(lambda: condition() or self._failure is not None, seconds)

    def check(self) -> None:
        """Raise what has failed."""
        if self._failure:
            raise self._failure

    def end(self) -> None:
        """No further request is to be sent."""
        self._ending.set()
        with self._lock:
            self._work.notify()

    # What senders do.

    @property
    def is_ending(self) -> bool:
        """Whether no further request is to be sent."""
        return self._ending.is_set()

    def rest(self, seconds: float) -> None:
        """Wait between two tries, unless the end comes first."""
        self._ending.wait(seconds)

    def cut(self) -> list[Waiting]:
        """Wait until a batch is due; empty at the end."""
        with self._turn, self._lock:
            while not self._ending.is_set():
                due = self._due_in()
                if due == 0 and (batch := self._schedule.take(self._batch.size, self._most_bytes)):
                    return batch
                if due != 0:
                    self._work.wait(due)
        return []

    def more(self) -> list[Waiting]:
        """A batch of what waits now, if anything does."""
        with self._lock:
            return self._schedule.take(self._batch.size, self._most_bytes)

    def shrink(self, refused: int) -> None:
        """The destination has refused a request of `refused` bytes as too large: further batches have half of that."""
        with self._lock:
            self._most_bytes, self._taken_since = min(self._most_bytes, max(1, refused // 2)), 0

    def set_aside(self, batch: Sequence[Waiting]) -> bool:
        """Let what shares no row with these go on, with room for more; False if too many were set aside already."""
        with self._lock:
            if self._schedule.aside >= self._most_aside:
                return False
            self._schedule.set_aside(batch)
            self._work.notify()  # there is more to send now
            return True

    def close_aside(self) -> None:
        """Everything of a batch that was set aside is settled."""
        with self._lock:
            self._schedule.aside -= 1

    def changes(self, some: Sequence[Waiting]) -> list[Change]:
        """The changes that these were made of."""
        with self._lock:
            return [self._schedule.change(one.number) for one in some]

    def with_rows(self, some: Sequence[Waiting]) -> Sequence[Waiting]:
        """These, with the rows they are about: looked for only now, unless they are known already."""
        if all(one.rows for one in some):  # of some they may be known, because they were looked at while others were aside
            return some
        with self._lock:
            rows = self._schedule.rows(some)
        return [made((*one[:-1], found)) for one, found in zip(some, rows, strict=True)]

    def are_clear(self, some: Sequence[Waiting], news: Callable[[int], Collection[str | None]]) -> bool:
        """Whether it is known that none of these waits for a letter, where `news` has those that came recently."""
        with self._lock:
            return self._schedule.are_clear(some, news)

    def keys(self, some: Sequence[Waiting]) -> Sequence[str] | None:
        """The keys of these, if it is known that each of them is about one row."""
        with self._lock:
            return self._schedule.keys(some)

    def _due_in(self) -> float | None:
        waiting = self._schedule.waiting
        waited = time.monotonic() - self._schedule.since if waiting else 0.0
        return due_in(waiting, waited, self._batch, is_urgent=self._schedule.durable < self._urgent)

    def settle(self, batch: Sequence[Waiting], *, is_taken: bool = False, condemned: int = 0) -> None:
        """These are done with: accepted, condemned, or waiting behind what was."""
        with self._lock:
            self.requests_taken += is_taken
            self._grow(is_taken)
            self.condemned_in_row = 0 if is_taken else self.condemned_in_row + condemned
            if self._schedule.settle(batch):
                self._work.notify()
            # not for every little room: waking costs
            if self.is_drained() or (self._schedule.waiting <= self._stock // 2 and self.has_room()):
                self._progress.notify()

    def _grow(self, is_taken: bool) -> None:
        """What has answered that a request is too large may have been a passing proxy: try larger ones again, but rarely."""
        self._taken_since += is_taken
        if self._taken_since >= GROWTH and self._most_bytes < self._batch.bytes:
            self._most_bytes, self._taken_since = min(2 * self._most_bytes, self._batch.bytes), 0

    def fail(self, failure: BaseException) -> None:
        """End all: every later call of the caller raises this. The first one counts."""
        with self._lock:
            self._failure = self._failure or failure
            self._progress.notify()
        self.end()
