"""A transactional producer: the records and the watermark after them become visible in one step or not at all."""

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
from penstock.sinks.kafka.fault import ending
from penstock.sinks.kafka.group_watermark import PATIENCE, GroupWatermark
from penstock.sinks.kafka.handing import flushed, refused
from penstock.sinks.kafka.record import Record, Unfit
from penstock.sinks.kafka.settings import KafkaSettings
from penstock.sinks.kafka.shelf import Entry

STEP_SECONDS = 1.0  # the longest time of a call before it checks whether the delivery is ending
FLUSH_SECONDS = 0.05
IMPATIENT_TRIES, IMPATIENT_SECONDS = 4, 0.02
ASKED = 2  # the number of requests for the reason of a failed transaction


class Aborted(Exception):
    """The transaction cannot be committed; all of it must be sent again. `error` is the library's."""

    def __init__(self, error: Any) -> None:
        super().__init__(str(error))
        self.error = error


class Ended(Exception):
    """The delivery is ending."""


class Transactions:
    """One producer's transactions, one after the other. `committed`: the last mark.

    `asked_at`: the start of the call under way. `begun_at`: the start, or the last progress, of the step that this call belongs to.
    """

    def __init__(self, sink: KafkaSettings, assignment: Assignment, is_wanted: Callable[[], bool]) -> None:
        self._group, self._is_wanted = GroupWatermark(sink, assignment.pipeline, assignment.lane), is_wanted
        self._failed: dict[int, Any] = {}
        self._is_open, self._turn = False, 0
        self.asked_at: float | None = None
        self.begun_at: float | None = None
        self._group.prepare()
        self._member = self._group.member()
        self._producer = taken(self._group)
        self.committed = self._group.read()

    def produce(self, entry: Entry) -> Unfit | None:
        """Send a record in the transaction, which begins with the first; return Unfit if it is no valid record."""
        assert isinstance(entry.record, Record)
        self._begin()
        on_report = partial(self._on_report, self._turn, entry.number)
        error = refused(entry.record, lambda: self._producer, on_report, self._make_room)
        if error is None or isinstance(error, Unfit):
            return error
        self._failed.setdefault(entry.number, error)
        raise Aborted(error)

    def _make_room(self) -> None:
        self._poll(0.05)
        self._look()

    def serve(self) -> None:
        """Process the reports of records. Raises Aborted if one has failed."""
        self._poll(0)
        self._check()

    def flush(self) -> None:
        """Wait for the report of every record sent."""
        self._check()
        left, moved_at = -1, time.monotonic()
        while now_left := self._tried(partial(flushed, self._producer, FLUSH_SECONDS), moved_at):  # the same once one has failed
            if now_left != left:
                left, moved_at = now_left, time.monotonic()
            self._look()
            self._check()
        self._check()

    def _poll(self, seconds: float) -> None:
        self._tried(lambda: self._producer.poll(seconds))

    def commit(self, watermark: Watermark) -> None:
        """Commit the records and the watermark, which is sent while the last records are under way."""
        self._begin()
        offsets = self._group.offsets(watermark)
        self._tried(lambda: self._producer.send_offsets_to_transaction(offsets, self._member, STEP_SECONDS))
        self.flush()
        reach("sink.sending")
        self._look()  # those calls may have returned long after their deadline
        self._tried(lambda: self._producer.commit_transaction(STEP_SECONDS))
        self._is_open, self.committed = False, watermark

    def abort(self) -> dict[int, Any]:
        """Abort the transaction and continue with another producer; return the failed records with their errors.

        A producer whose transaction failed because of a record cannot always abort it; its successor does. If a third producer had
        the lane between the two, the lane is lost.
        """
        self._look()
        with suppress(SinkUnavailable):
            self._tried(lambda: self._producer.abort_transaction(STEP_SECONDS))
            self._poll(0)
        failed, self._failed = self._failed, {}
        self._is_open, self._turn = False, self._turn + 1
        self._producer = taken(self._group)
        if self._group.read() != self.committed:
            raise TermLost("another producer has taken this lane meanwhile")
        return failed

    def close(self) -> None:
        """Abort an open transaction, if the brokers answer: consumers would wait for it."""
        if self._is_open:
            with suppress(kafka.KafkaException):  # the next producer of the lane aborts it
                self._producer.abort_transaction(STEP_SECONDS)
        self._producer = None

    def _begin(self) -> None:
        if not self._is_open:
            self._tried(self._producer.begin_transaction)
            self._is_open = True

    def _on_report(self, turn: int, number: int, error: Any, _: Any) -> None:
        """The report of a record; for an aborted one it may come late, when the record is sent again."""
        if error is not None and turn == self._turn:
            self._failed[number] = error

    def _check(self) -> None:
        if self._failed:
            told = (error for error in self._failed.values() if error.name() != "_PURGE_QUEUE")
            raise Aborted(next(told, None) or self._reason(next(iter(self._failed.values()))))

    def _reason(self, otherwise: Any) -> Any:
        """The error that failed the transaction: later steps are refused with it, a step during the failure with its state."""
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

    def _tried(self, call: Callable[[], Any], since: float | None = None) -> Any:
        self.begun_at = since or time.monotonic()
        try:
            while True:
                self.asked_at = time.monotonic()
                try:
                    return call()
                except kafka.KafkaException as error:
                    self._judge(error.args[0])
                self._look()
        finally:
            self.asked_at = self.begun_at = None

    def _judge(self, error: Any) -> None:
        if error.fatal():
            raise ending(error, "the transaction was refused") from None
        if error.txn_requires_abort():
            raise Aborted(self._reason(error) if error.name() == "_STATE" else error) from None
        if not error.retriable():
            raise ending(error, "the transaction failed") from None


def taken(group: GroupWatermark) -> Any:
    """A producer that has the lane: its predecessors are fenced, and their open transactions aborted.

    During such an abort brokers answer "concurrent transactions", and the library would retry half a second later. A new producer
    asks at once: the one before it is gone by then, and since it had its answer, it has no request that could fence its successor.
    """
    for _ in range(IMPATIENT_TRIES):
        if producer := _taken_within(group, IMPATIENT_SECONDS):
            return producer
    return _taken_within(group, PATIENCE)


def _taken_within(group: GroupWatermark, step: float) -> Any:
    """A producer that has the lane; None at the answer "concurrent transactions"."""
    producer, deadline = kafka.Producer(group.producer_settings()), time.monotonic() + PATIENCE
    try:
        producer.list_topics(group.topic, PATIENCE)  # without a connection the search for a coordinator takes half a second
        while True:
            try:
                producer.init_transactions(step)
            except kafka.KafkaException as error:
                said = error.args[0]
                if not said.retriable() or time.monotonic() > deadline:
                    raise
                if said.code() == kafka.KafkaError.CONCURRENT_TRANSACTIONS:
                    return None
            else:
                return producer
    except kafka.KafkaException as error:
        raise group.ending(error, "taking the lane over", producer) from None
