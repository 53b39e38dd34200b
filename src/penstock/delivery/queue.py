"""The meeting point of the caller and the senders: a schedule, a lock, and conditions."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence
from threading import Condition, Event, Lock

from penstock.change import Change
from penstock.delivery.schedule import Ready, Schedule, Waiting, made
from penstock.delivery.settings import Pace, due_in

_ROOM_BATCHES = 4
_ROOM_CHANGES = 1000
GROWTH = 100  # accepted requests until the size of batches, reduced after a refusal, grows again
_SWITCH_SECONDS = 0.00001


def share_interpreter() -> None:
    """Shorten the switch interval: by default a busy caller releases the interpreter to a thread with an answer only every 5 ms."""
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))


class Queue:
    """The caller puts changes in, senders take batches out and settle them.

    One sender at a time waits for the next batch, so that an event wakes one thread and not all.
    """

    def __init__(self, pace: Pace) -> None:
        share_interpreter()
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

    # Called by the caller's thread.

    def put(self, ready: Ready) -> None:
        """Take these changes, after `has_room` returned True."""
        with self._lock:
            was_idle = not self._schedule.waiting
            self._schedule.put(ready, time.monotonic())
            if was_idle or self._schedule.waiting >= self._batch.size:
                self._work.notify()

    def has_room(self) -> bool:
        """Whether more changes may be put in."""
        return self._schedule.taken - self._schedule.durable < self._schedule.reach

    def is_drained(self) -> bool:
        """Whether everything taken is durable."""
        return self._schedule.durable == self._schedule.taken

    def hurry(self) -> None:
        """Send everything taken without further delay."""
        with self._lock:
            self._urgent = self._schedule.taken
            self._work.notify()

    def last(self) -> Change | None:
        """The last change up to which everything is durable."""
        with self._lock:
            return self._schedule.last()

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until the condition holds, or until the delivery has failed."""
        with self._lock:
            return self._progress.wait_for(lambda: condition() or self._failure is not None, seconds)

    def check(self) -> None:
        """Raise the failure, if there is one."""
        if self._failure:
            raise self._failure

    def end(self) -> None:
        """No further request is sent."""
        self._ending.set()
        with self._lock:
            self._work.notify()

    # Called by senders.

    @property
    def is_ending(self) -> bool:
        """Whether no further request is sent."""
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
        """A batch of the changes that wait now, if any."""
        with self._lock:
            return self._schedule.take(self._batch.size, self._most_bytes)

    def shrink(self, refused: int) -> None:
        """The destination refused a request of `refused` bytes as too large: further batches have half of that."""
        with self._lock:
            self._most_bytes, self._taken_since = min(self._most_bytes, max(1, refused // 2)), 0

    def set_aside(self, batch: Sequence[Waiting]) -> bool:
        """Continue with changes that share no row with these, with more room; False if too many batches are set aside already."""
        with self._lock:
            if self._schedule.aside >= self._most_aside:
                return False
            self._schedule.set_aside(batch)
            self._work.notify()  # there is more to send now
            return True

    def close_aside(self) -> None:
        """All changes of a batch that was set aside are settled."""
        with self._lock:
            self._schedule.aside -= 1

    def changes(self, some: Sequence[Waiting]) -> list[Change]:
        """The original changes."""
        with self._lock:
            return [self._schedule.change(one.number) for one in some]

    def with_rows(self, some: Sequence[Waiting]) -> Sequence[Waiting]:
        """The same with their rows, which are computed only now, unless they are present."""
        if all(one.rows for one in some):  # some have them, from a time with a batch set aside
            return some
        with self._lock:
            rows = self._schedule.rows(some)
        return [made((*one[:-1], found)) for one, found in zip(some, rows, strict=True)]

    def are_clear(self, some: Sequence[Waiting], news: Callable[[int], Collection[str | None]]) -> bool:
        """Whether it is certain that none of these waits for a letter; `news` returns the keys of recent ones."""
        with self._lock:
            return self._schedule.are_clear(some, news)

    def keys(self, some: Sequence[Waiting]) -> Sequence[str] | None:
        """The keys of these, if each is certainly about one row."""
        with self._lock:
            return self._schedule.keys(some)

    def _due_in(self) -> float | None:
        waiting = self._schedule.waiting
        waited = time.monotonic() - self._schedule.since if waiting else 0.0
        return due_in(waiting, waited, self._batch, is_urgent=self._schedule.durable < self._urgent)

    def settle(self, batch: Sequence[Waiting], *, is_taken: bool = False, condemned: int = 0) -> None:
        """These are settled: accepted, condemned, or parked after a letter."""
        with self._lock:
            self.requests_taken += is_taken
            self._grow(is_taken)
            self.condemned_in_row = 0 if is_taken else self.condemned_in_row + condemned
            if self._schedule.settle(batch):
                self._work.notify()
            # not for every bit of room: waking a thread costs
            if self.is_drained() or (self._schedule.waiting <= self._stock // 2 and self.has_room()):
                self._progress.notify()

    def _grow(self, is_taken: bool) -> None:
        """The refusal of a large request may have come from a temporary proxy: try larger ones again, but rarely."""
        self._taken_since += is_taken
        if self._taken_since >= GROWTH and self._most_bytes < self._batch.bytes:
            self._most_bytes, self._taken_since = min(2 * self._most_bytes, self._batch.bytes), 0

    def fail(self, failure: BaseException) -> None:
        """End all: every later call of the caller raises the first failure."""
        with self._lock:
            self._failure = self._failure or failure
            self._progress.notify()
        self.end()
