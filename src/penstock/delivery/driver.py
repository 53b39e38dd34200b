"""A delivery over a transport: the caller makes texts of changes, senders send them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import repeat

import pyarrow as pa

from penstock.change import Change, from_batch, last_place, places
from penstock.delivery.aside import Aside
from penstock.delivery.queue import Queue
from penstock.delivery.schedule import Ready
from penstock.delivery.sender import Equipment, Sender, batches
from penstock.delivery.settings import Pace
from penstock.delivery.transport import Destination
from penstock.rows import Row, plain_keys, rows_at, rows_of
from penstock.sink import Assignment


class Driver:
    """Keeps the promises of Delivery; DESIGN.md lists the invariants."""

    def __init__(self, pace: Pace, assignment: Assignment, destination: Destination) -> None:
        self._texts, self._queue = destination.texts, Queue(pace)
        self._previous, self._poison, self._is_parallel = assignment.previous, assignment.poison, pace.parallel > 1
        is_chained = pace.parallel == 1 and pace.retry.then == "halt"
        equipment = Equipment(destination.shown, self._queue, pace.retry, assignment, is_chained)
        self._aside = Aside(destination.connect, equipment)
        take_over = self._aside.take_over if pace.bisections else None
        self._senders: list[Sender] = []
        with ExitStack() as opened:
            for _ in range(pace.parallel):
                self._senders.append(Sender(destination.connect(), equipment, batches(equipment), take_over))
                opened.callback(self._senders[-1].transport.close)
            opened.pop_all()
        for sender in self._senders:
            sender.start()

    def offer(self, changes: pa.RecordBatch, wait: float) -> bool:
        """Take these changes unless there is no room."""
        if not self._wait(self._queue.has_room, wait):
            return False
        if changes.num_rows:
            self._queue.put(self._ready(changes))
            self._previous = last_place(changes)[0]
        return True

    def _ready(self, changes: pa.RecordBatch) -> Ready:
        parked_keys, rows = self._poison.parked_keys, rows_of(changes) if self._is_parallel else []
        has_letters, moment = bool(parked_keys), parked_keys.moment
        keys = plain_keys(changes) if has_letters else None
        ready = Ready(changes, places(changes), self._texts(changes, self._previous), rows or repeat(()), keys)
        near = parked_keys.near(ready.places, keys) if has_letters else ()
        concerned = self._concerned(ready, near, rows) if near else []
        ready = self._without_parked(ready, concerned) if concerned else ready
        is_clear = not any(ready.texts[index] is not None for index in concerned)
        return ready._replace(clear_at=moment if is_clear else None)

    def _concerned(self, ready: Ready, near: Sequence[int], rows: Sequence[Sequence[Row]]) -> list[int]:
        """The changes that may be letters or wait for one; the others certainly do not."""
        some = rows_at(ready.offered, near, ready.keys) if ready.keys else rows or rows_of(ready.offered)
        return [near[index] for index in self._poison.parked_keys.among([ready.places[index] for index in near], some)]

    def _without_parked(self, ready: Ready, concerned: Sequence[int]) -> Ready:
        """Park the changes that wait for a dead letter, in one step for the whole offer, since each step costs."""
        parked = self._poison.keep_back(list(from_batch(ready.offered.take(pa.array(concerned)))))
        texts = list(ready.texts)
        for index in concerned:
            texts[index] = None if ready.places[index] in parked else texts[index]
        return ready._replace(texts=texts)

    def delivered(self) -> Change | None:
        """The last change up to which all are accepted, also after a later one has failed."""
        self._sever_late()
        return self._queue.last()

    def drain(self, wait: float) -> bool:
        """Send without further delay, and wait until all is durable."""
        self._queue.hurry()
        return self._wait(self._queue.is_drained, wait)

    def close(self) -> None:
        """Wait for the outcome of the requests under way, and stop."""
        self._queue.end()
        self._aside.end()
        while alive := [sender for sender in self._all() if sender.is_alive()]:
            self._sever_late()
            alive[0].join(0.1)
        with ExitStack() as opened:
            for sender in self._all():
                opened.callback(sender.transport.close)

    def _all(self) -> list[Sender]:
        return [*self._senders, *self._aside.senders]

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        self._check()
        is_met = self._queue.wait(condition, seconds)
        self._check()
        return is_met

    def _check(self) -> None:
        self._sever_late()
        self._queue.check()

    def _sever_late(self) -> None:
        for sender in self._all():
            sender.transport.sever_if_late()
