"""Exactly once: the caller adds runs of changes and marks, a thread sends them in transactions that end at marks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Thread

import pyarrow as pa

from penstock.change import Change
from penstock.cursor import Watermark
from penstock.delivery.queue import share_interpreter
from penstock.errors import SinkUnavailable
from penstock.sink import Assignment
from penstock.sinks.kafka.open_transaction import OpenTransaction
from penstock.sinks.kafka.record import Made, Recorder
from penstock.sinks.kafka.settings import KafkaSettings
from penstock.sinks.kafka.transaction import Ended, Transactions

ROOM = 20_000  # the most changes that wait to be sent
STUCK_SECONDS = 5.0  # a call of at most a second that lasts longer will not return
STALL_SECONDS = 30.0  # a client that retries for longer, or makes no progress with records, is given up
REST_SECONDS = 0.002
"""After a commit: brokers complete it after they have answered it, and the library waits 20 ms if it asks too early."""

LATE_SECONDS = 0.1  # the longest delay of a commit while more changes wait that can be part of it
_AGAIN = "no action needed: a new client takes the lane"

Run = Sequence[Made]


class TransactionalDelivery:
    """Keeps the promises of penstock.sink.TransactionalDelivery."""

    def __init__(self, sink: KafkaSettings, assignment: Assignment) -> None:
        self._interval, self._recorder = sink.interval.total_seconds(), Recorder(sink, assignment)
        self._items: deque[Run | Watermark] = deque()
        self._waiting = 0
        self._is_busy = self._is_urgent = self._is_ending = False
        self._failure: BaseException | None = None
        self._changed = Condition()
        self._transactions = Transactions(sink, assignment, lambda: not self._is_ending)
        self.kept = self._transactions.committed  # when the lane was taken
        self._window = OpenTransaction(sink, assignment, self._transactions, self._rest)
        self._due_at = self._rests_until = 0.0
        share_interpreter()
        self._thread = Thread(target=self._run, name="kafka", daemon=True)
        self._thread.start()

    # Called by the caller's thread.

    def offer(self, changes: pa.RecordBatch, wait: float) -> bool:
        """Take these changes unless there is no room."""
        if not self._wait(lambda: self._waiting < ROOM, wait):
            return False
        if changes.num_rows:
            run = self._recorder.records(changes)
            self._put(run, len(run))
        return True

    def mark(self, watermark: Watermark) -> None:
        """The changes taken before may be committed, with this watermark."""
        self._put(watermark, 0)

    def delivered(self) -> Change | None:
        """The last change of the last transaction."""
        return self._window.last

    def drain(self, wait: float) -> bool:
        """Commit without further delay, and wait for it."""
        with self._changed:
            self._is_urgent = True
            self._changed.notify_all()
        return self._wait(self._is_drained, wait)

    def close(self) -> None:
        """Wait for a commit that is under way, and abort everything else."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        while self._thread.is_alive() and not self._is_stuck():
            self._thread.join(0.1)

    def _put(self, item: Run | Watermark, changes: int) -> None:
        with self._changed:
            self._items.append(item)
            self._waiting += changes
            self._changed.notify_all()

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        with self._changed:
            is_met = self._changed.wait_for(lambda: condition() or self._failure is not None, seconds)
            if self._is_stuck():
                self._failure = self._failure or SinkUnavailable(
                    "the brokers do not answer, and the client waits without limit", _AGAIN
                )
            if self._failure:
                raise self._failure
            return is_met

    def _is_stuck(self) -> bool:
        """Whether a call has not returned in time, or is repeated in vain, as can happen when a broker dies."""
        limits = (self._transactions.asked_at, STUCK_SECONDS), (self._transactions.begun_at, STALL_SECONDS)
        return any(since is not None and time.monotonic() - since > seconds for since, seconds in limits)

    def _is_drained(self) -> bool:
        return not self._items and not self._is_busy and not self._window.is_committable

    # Called by the thread.

    def _run(self) -> None:
        try:
            while self._turn():
                continue
        except Ended:
            pass
        except BaseException as failure:  # noqa: BLE001 - every later call of the owner raises the failure of the thread
            with self._changed:
                self._failure = failure
                self._changed.notify_all()
        finally:
            self._transactions.close()

    def _turn(self) -> bool:
        """Send the next run and commit if a commit is due; False at the end."""
        item = self._next()
        if isinstance(item, Watermark):
            self._window.mark(item)
        elif item is not None:
            self._window.add(item)
        if self._is_to_commit():
            due_at = time.monotonic() + self._interval
            self._window.commit()
            now = time.monotonic()  # a long commit does not delay the next one
            self._due_at, self._rests_until = max(due_at, now), now + REST_SECONDS
        with self._changed:
            self._is_busy = False
            self._is_urgent = self._is_urgent and not self._is_drained()
            self._changed.notify_all()
        return not self._is_ending

    def _next(self) -> Run | Watermark | None:
        """The next run or mark; None when a commit is due before it arrives."""
        with self._changed:
            while not self._is_ending and not self._is_to_commit() and not self._is_to_take():
                self._changed.wait(self._patience())
            self._is_busy = True
            if not self._items or self._is_ending:
                return None
            item = self._items.popleft()
            self._waiting -= 0 if isinstance(item, Watermark) else len(item)
            return item

    def _is_to_take(self) -> bool:
        """Whether a waiting item may be sent: not while the brokers may be completing the last transaction."""
        return bool(self._items) and (self._window.is_begun or time.monotonic() >= self._rests_until)

    def _is_to_commit(self) -> bool:
        late = time.monotonic() - self._due_at
        return self._window.is_committable and (self._is_urgent or late >= 0) and (not self._items or late >= LATE_SECONDS)

    def _patience(self) -> float | None:
        if self._items:
            return self._rests_until - time.monotonic()
        return self._due_at - time.monotonic() if self._window.is_committable else None

    def _rest(self, seconds: float) -> None:
        """Wait between two tries. Raises Ended if the delivery ends first."""
        with self._changed:
            if self._changed.wait_for(lambda: self._is_ending, seconds):
                raise Ended
