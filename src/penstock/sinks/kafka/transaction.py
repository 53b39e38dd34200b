"""A transactional producer: what is sent, and the watermark behind it, become visible in one step or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import confluent_kafka as kafka

from penstock.cursor import Cursor, Watermark
from penstock.errors import SinkUnavailable, TermLost
from penstock.failpoint import reach
from penstock.sink import Assignment
from penstock.sinks.kafka import client
from penstock.sinks.kafka.fault import ending
from penstock.sinks.kafka.group_watermark import GroupWatermark
from penstock.sinks.kafka.handing import flushed
from penstock.sinks.kafka.settings import KafkaSettings
from penstock.sinks.kafka.shelf import Entry
from penstock.sinks.kafka.takeover import taken

STEP_SECONDS = 1.0
"""How long a call may take before it looks whether it is still wanted."""


FLUSH_SECONDS = 0.05

ASKED = 2
"""How often a failed transaction is asked for its reason."""


class Aborted(Exception):
    """The transaction cannot be committed; all of it has to go again. `error` is the library's."""

    def __init__(self, error: Any) -> None:
        super().__init__(str(error))
        self.error = error


class Ended(Exception):
    """Nobody wants it any more."""


class Transactions:
    """One producer's transactions, one after the other. `committed`: the last mark.

    `asked_at`: when the call under way began; `begun_at`: when what it is part of began, or last came nearer to its end.
    """

    def __init__(self, sink: KafkaSettings, assignment: Assignment, is_wanted: Callable[[], bool]) -> None:
        self._group, self._is_wanted = GroupWatermark(sink, assignment.pipeline, assignment.lane), is_wanted
        self._failed: dict[int, Any] = {}
        self._is_open, self._turn = False, 0
        self.asked_at: float | None = None
        self.begun_at: float | None = None
        self._settings = client.transactional(sink.config, assignment.pipeline, self._group.name, self._group.hear)
        self._group.prepare()
        self._member = self._group.member()
        self._producer = taken(self._group, self._settings)
        self.committed = self._group.read()

    def produce(self, entry: Entry) -> None:
        """Send a record in the transaction, which begins with the first. Raises TypeError or ValueError if it cannot be sent."""
        assert entry.record
        topic, key, value, headers = entry.record
        self._begin()
        while True:
            try:
                self._producer.produce(
                    topic, value, key, headers=headers, on_delivery=partial(self._hear_of, self._turn, entry.number)
                )
            except BufferError:  # the library's own queue is full
                self._poll(0.05)
                self._look()
            except kafka.KafkaException as error:
                self._failed.setdefault(entry.number, error.args[0])
                raise Aborted(error.args[0]) from None
            else:
                return

    def serve(self) -> None:
        """Hear what became of records. Raises Aborted if one has failed."""
        self._poll(0)
        self._check()

    def flush(self) -> None:
        """Wait until it is known what became of every record sent so far."""
        self._check()
        left, moved_at = -1, time.monotonic()
        while now_left := self._flushed(moved_at):
            if now_left != left:
                left, moved_at = now_left, time.monotonic()
            self._look()
            self._check()
        self._check()

    def _flushed(self, since: float) -> int:
        """How many are still under way: none of them goes on once one has failed."""
        left: list[int] = []
        self._tried(lambda: left.append(flushed(self._producer, FLUSH_SECONDS)), since)
        return left[0]

    def _poll(self, seconds: float) -> None:
        self._tried(lambda: self._producer.poll(seconds))

    def commit(self, watermark: Watermark) -> None:
        """Make all of it visible, and the watermark with it, which goes out while the last records do."""
        self._begin()
        offsets = self._group.offsets(watermark)
        self._tried(lambda: self._producer.send_offsets_to_transaction(offsets, self._member, STEP_SECONDS))
        self.flush()
        reach("sink.sending")
        self._look()  # those calls may have come back long after everybody has given them up
        self._tried(lambda: self._producer.commit_transaction(STEP_SECONDS))
        self._is_open, self.committed = False, watermark

    def abort(self) -> dict[int, Any]:
        """Undo all of it, and go on with another producer; which records failed, and why.

        A producer whose transaction failed for the fault of a record cannot always abort it; its successor does. If somebody else
        has had the lane between the two, it is theirs.
        """
        self._look()
        with suppress(SinkUnavailable):
            self._tried(lambda: self._producer.abort_transaction(STEP_SECONDS))
            self._poll(0)
        failed, self._failed = self._failed, {}
        self._is_open, self._turn = False, self._turn + 1
        self._producer = taken(self._group, self._settings)
        if self._group.read() != self.committed:
            raise TermLost("another producer has had this lane meanwhile")
        return failed

    def close(self) -> None:
        """Abort what is open, if the brokers answer, so that no consumer has to wait for it."""
        if self._producer is not None and self._is_open:
            try:
                self._producer.abort_transaction(STEP_SECONDS)
            except kafka.KafkaException:
                self._is_open = False  # whoever takes the lane over aborts it
        self._producer = None

    def _begin(self) -> None:
        if not self._is_open:
            self._tried(self._producer.begin_transaction)
            self._is_open = True

    def _hear_of(self, turn: int, number: int, error: Any, _: Any) -> None:
        """What became of a record; of one that was aborted it may come late, when it goes again already."""
        if error is not None and turn == self._turn:
            self._failed[number] = error

    def _check(self) -> None:
        if self._failed:
            told = (error for error in self._failed.values() if error.name() != "_PURGE_QUEUE")
            raise Aborted(next(told, None) or self._reason(next(iter(self._failed.values()))))

    def _reason(self, otherwise: Any) -> Any:
        """The error that made the transaction fail: steps after the failure are refused with it, a step during it for its state."""
        offsets, found = self._group.offsets(Watermark(Cursor(""), 0)), otherwise
        for _ in range(ASKED):
            try:
                self._producer.send_offsets_to_transaction(offsets, self._member, STEP_SECONDS)
            except kafka.KafkaException as error:
                found = error.args[0]
                if found.name() != "_STATE":
                    break
        return found

    def _look(self) -> None:
        if not self._is_wanted():
            raise Ended

    def _tried(self, call: Callable[[], Any], since: float | None = None) -> None:
        """Call until it is answered."""
        self.begun_at = since or time.monotonic()
        try:
            while not self._is_answered(call):
                self._look()
        finally:
            self.asked_at = self.begun_at = None

    def _is_answered(self, call: Callable[[], Any]) -> bool:
        self.asked_at = time.monotonic()
        try:
            call()
        except kafka.KafkaException as error:
            self._judge(error.args[0])
            return False
        return True

    def _judge(self, error: Any) -> None:
        if error.fatal():
            raise ending(error, "the transaction was refused") from None
        if error.txn_requires_abort():
            raise Aborted(self._reason(error) if error.name() == "_STATE" else error) from None
        if not error.retriable():
            raise ending(error, "the transaction failed") from None
