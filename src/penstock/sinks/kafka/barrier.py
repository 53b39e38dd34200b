"""One record of a key at a time: the next one is sent when the row of the one before it is purged, durably.

A failed record goes back to the table, with all later ones of its key, to be marked and sent again. A crash between an
acknowledgement and its purge repeats one record of a key: R0 R1 R1 R2, never R0 R1 R2 R0.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import random
from threading import Condition, Thread
from typing import Any

import confluent_kafka as kafka
import pyarrow as pa

from penstock.change import Change
from penstock.delivery.queue import share_interpreter
from penstock.errors import PenstockError, SinkUnavailable, SourceUnavailable
from penstock.event import InFlight, MessagesReturned
from penstock.failpoint import reach
from penstock.poison.condemned import Condemned
from penstock.sink import Assignment
from penstock.sinks.kafka import client
from penstock.sinks.kafka.fault import ErrorScope, condemning, ending, is_refusal, said, unfit, verdict
from penstock.sinks.kafka.handing import flushed, refused
from penstock.sinks.kafka.key_barrier import KeyBarrier
from penstock.sinks.kafka.record import Made, Record, Recorder, Unfit
from penstock.sinks.kafka.settings import KafkaSettings
from penstock.sinks.kafka.shelf import Entry, Shelf, Suspects, sifted
from penstock.source import RowName

ROOM = 20_000
CLOSE_SECONDS = 5.0
CONFIRM_SECONDS = 1.0
"""After so long without an answer of the table the rows are confirmed before sending: the process may have been suspended."""

LOST_SECONDS = 60.0  # the longest time in which a returned message must arrive again
POLL_SECONDS = 0.002
LOOK_SECONDS = 0.5
AGAIN_SECONDS = 0.2
REPORT_SECONDS = 5.0
COUNT_SECONDS = 0.25  # the shortest time between two InFlight events


class BarrierDelivery:
    """Keeps the promises of Delivery; a thread sends, purges and returns the changes of the caller."""

    def __init__(self, sink: KafkaSettings, assignment: Assignment) -> None:
        assert assignment.row_lease, "the pipeline file is refused where a source has none"
        self._sink, self._assignment, self._row_lease = sink, assignment, assignment.row_lease
        self._recorder, self._shelf, self._barrier = Recorder(sink, assignment), Shelf(), KeyBarrier(self._row_lease.name)
        self._given: deque[Made] = deque()
        self._changed = Condition()
        self._under_way: dict[int, Entry] = {}
        self._failed: list[tuple[Entry, Any]] = []
        self._done: list[Entry] = []
        self._returning: list[Entry] = []
        self._suspects = Suspects()
        self._tries, self._rests_until, self._confirmed_at, self._reported_at = 0, 0.0, time.monotonic(), 0.0
        self._returned_at = 0.0
        self._counted, self._counted_at = 0, 0.0
        self._is_ending = self._has_succeeded = False
        self._failure: BaseException | None = None
        self._producer: Any = self._made()
        share_interpreter()
        self._thread = Thread(target=self._run, name="kafka", daemon=True)
        self._thread.start()

    # Called by the caller's thread.

    def offer(self, changes: pa.RecordBatch, wait: float) -> bool:
        """Take these changes unless there is no room."""
        if not self._wait(self._has_room, wait):
            return False
        if changes.num_rows:
            made = self._recorder.records(changes)
            with self._changed:
                self._given.extend(made)
                self._changed.notify_all()
        return True

    def delivered(self) -> Change | None:
        """The last change up to which every row is purged or returned."""
        return self._shelf.last

    def drain(self, wait: float) -> bool:
        """Wait until every row is purged. A returned row cannot arrive again when the reader has stopped."""
        is_done = self._wait(lambda: not self._given and not self._shelf, wait)
        if is_done and (returned := self._barrier.returned):
            raise SinkUnavailable(f"{returned} messages went back to the table after failures, and must be read again")
        return is_done

    def close(self) -> None:
        """Wait for the reports of records under way, and purge the delivered ones."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        self._thread.join()

    def _has_room(self) -> bool:
        return len(self._shelf) + len(self._given) < ROOM

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        with self._changed:
            is_met = self._changed.wait_for(lambda: condition() or self._failure is not None, seconds)
            if self._failure:
                raise self._failure
            return is_met

    # Called by the thread.

    def _run(self) -> None:
        try:
            while not self._is_ending:
                self._turn()
            self._finish()
        except BaseException as failure:  # noqa: BLE001 - every later call of the owner raises the failure of the thread
            self._fail(failure)
        finally:
            self._producer.purge(in_queue=True, in_flight=False)
            self._row_lease.close()

    def _turn(self) -> None:
        self._take_in()
        if not self._failure and time.monotonic() >= self._rests_until:
            self._send()
        self._listen(POLL_SECONDS)
        self._count()
        self._judge()
        self._settle()
        if self._barrier.returned and time.monotonic() > self._returned_at + LOST_SECONDS:
            self._fail(SinkUnavailable(f"{self._barrier.returned} messages went back to the table and did not arrive again"))
        with self._changed:
            if self._has_room():  # a thread that wakes takes the interpreter from this one
                self._changed.notify_all()
            if not self._under_way and not self._given and not self._is_ending and (idle := self._idle_seconds()):
                self._changed.wait(idle)

    def _count(self) -> None:
        count, now = len(self._under_way) + len(self._done), time.monotonic()
        if count != self._counted and now - self._counted_at >= COUNT_SECONDS:
            self._counted, self._counted_at = count, now
            self._assignment.emit(InFlight(pipeline=self._assignment.pipeline, records=count, keys=count))

    def _idle_seconds(self) -> float:
        if self._failure or not (self._barrier or self._done or self._returning):
            return LOOK_SECONDS
        return min(LOOK_SECONDS, max(0.0, self._rests_until - time.monotonic()))

    def _take_in(self) -> None:
        with self._changed:
            entries = [self._shelf.put(*made) for made in self._given]
            self._given.clear()
        self._returning += [entry for entry in entries if not self._barrier.put(entry)]

    def _send(self) -> None:
        """Send the due entries. A suspect is sent when nothing else is under way."""
        if not self._suspects.isdisjoint(self._under_way):
            return
        due = self._barrier.due(self._sink.max_in_flight_records - len(self._under_way))
        sent = due
        if alone := [entry for entry in due if entry.number in self._suspects]:
            sent = [] if self._under_way else alone[:1]
            self._barrier.again([entry for entry in due if entry not in sent])
        if sent and self._is_confirmed(sent):
            for entry in self._sifted(sent):
                self._produce(entry)

    def _is_confirmed(self, entries: Sequence[Entry]) -> bool:
        """Whether these rows still belong to this pipeline, as far as it can know. Raises TermLost."""
        if time.monotonic() - self._confirmed_at < CONFIRM_SECONDS:
            return True
        is_known = self._asked(lambda: self._row_lease.confirm(self._rows(entries)))
        if not is_known:
            self._barrier.again(entries)
        return is_known

    def _sifted(self, entries: list[Entry]) -> list[Entry]:
        """The entries to send; entries that are parked or have no record are done, and their rows are purged."""
        left = sifted(entries, self._assignment.poison)
        if len(left) < len(entries):
            kept = {entry.number for entry in left}
            self._done += [entry for entry in entries if entry.number not in kept]
        sent: list[Entry] = []
        for entry in left:
            if isinstance(entry.record, Unfit):
                self._failed.append((entry, entry.record))
            else:
                (sent if entry.record else self._done).append(entry)
        return sent

    def _produce(self, entry: Entry) -> None:
        assert isinstance(entry.record, Record)
        reach("sink.sending")
        error = refused(entry.record, lambda: self._producer, partial(self._on_report, entry.number), lambda: self._listen(0.05))
        if error is None:
            self._under_way[entry.number] = entry
            return
        if not isinstance(error, Unfit):
            self._suspects.add(entry.number)  # it was in no batch: the error is its own
        self._failed.append((entry, error))

    def _on_report(self, number: int, error: Any, _: Any) -> None:
        if not (entry := self._under_way.pop(number, None)):
            return  # a report of a former producer
        if error is None:
            reach("sink.sent")
            self._has_succeeded, self._tries = True, 0
            self._done.append(entry)
        else:
            self._failed.append((entry, error))

    def _listen(self, seconds: float) -> None:
        try:
            self._producer.poll(seconds if self._under_way else 0)
        except kafka.KafkaException as error:  # this producer is broken: it returns the records that it has not sent
            self._wind_up()
            self._failed += [(entry, error.args[0]) for entry in self._under_way.values()]
            self._under_way.clear()
            self._producer = self._made()

    def _wind_up(self) -> None:
        self._producer.purge(in_queue=True, in_flight=False)
        with suppress(kafka.KafkaException):
            flushed(self._producer, CLOSE_SECONDS)

    def _judge(self) -> None:
        """Decide about failed entries: poison, to be sent alone, or back to the table."""
        failed, self._failed = self._failed, []
        returned: list[tuple[Entry, Any]] = []
        for entry, error in failed:
            if isinstance(error, Unfit):
                self._condemn(entry, unfit(error.reason))
            elif verdict(error) is ErrorScope.PASSING:
                returned.append((entry, error))
            elif self._suspects.convict(entry.number, verdict(error)):
                assert isinstance(entry.record, Record)
                self._condemn(entry, condemning(error, entry.record.topic))
            else:
                self._barrier.again([entry])
        if returned:
            self._give_back(returned)

    def _give_back(self, failed: Sequence[tuple[Entry, Any]]) -> None:
        """All entries of a key leave the barrier together, so that none overtakes the failed one."""
        self._returned_at = time.monotonic()
        self._returning += [one for entry, _ in failed for one in self._barrier.give_back(entry)]
        reason = said(failed[0][1])
        self._assignment.emit(MessagesReturned(pipeline=self._assignment.pipeline, messages=len(failed), reason=reason))
        self._tries += 1
        if self._tries > 1:  # a single failure is no outage; an outage has no limit of tries
            wait = self._sink.retry.wait(self._tries - 1, random())
            self._rests_until = time.monotonic() + wait
            self._report(reason, wait)

    def _condemn(self, entry: Entry, error: PenstockError) -> None:
        try:
            self._assignment.poison.condemn_all([Condemned(entry.change, error, is_refused=True)])
        except PenstockError as raised:
            self._fail(raised)
        else:
            self._done.append(entry)

    def _settle(self) -> None:
        """Purge delivered rows and reset returned ones: only then the next entries of their keys are due."""
        if self._done:
            self._assignment.poison.secure()
            reach("sink.purging")
            if self._asked(lambda: self._row_lease.purge(self._rows(self._done))):
                for entry in self._done:
                    self._barrier.settle(entry)
                self._shelve(self._done)
                self._done = []
        if self._returning and self._asked(lambda: self._row_lease.reset(self._rows(self._returning))):
            self._assignment.poison.hand_back([entry.change.place for entry in self._returning])
            self._shelve(self._returning)
            self._returning = []

    def _shelve(self, entries: Sequence[Entry]) -> None:
        with self._changed:
            for entry in entries:
                self._suspects.discard(entry.number)
                self._shelf.settle(entry.number)

    def _asked(self, ask: Callable[[], None]) -> bool:
        """Whether the table has answered; if not, the delivery asks again soon, and nothing moves meanwhile."""
        try:
            ask()
        except SourceUnavailable as error:
            self._report(error.message, AGAIN_SECONDS)
            time.sleep(AGAIN_SECONDS)
            return False
        self._confirmed_at = time.monotonic()
        return True

    def _finish(self) -> None:
        """Wait for the reports of sent records; the others are dropped, and their rows stay."""
        self._wind_up()
        self._settle()

    def _fail(self, failure: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    def _made(self) -> Any:
        return kafka.Producer(client.producing(client.BARRIER, self._sink.config, self._assignment.pipeline, self._on_error))

    def _on_error(self, error: Any) -> None:
        """An error without a record: the library continues by itself."""
        if is_refusal(error) and not self._has_succeeded:
            self._fail(ending(error, "the brokers refuse the client"))
        elif self._under_way and time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self._report(said(error), 0.0)

    def _report(self, reason: str, wait: float) -> None:
        self._reported_at = time.monotonic()
        self._assignment.retried(reason, max(1, self._tries), wait)

    def _rows(self, entries: Sequence[Entry]) -> list[RowName]:
        return [self._row_lease.name(entry.change) for entry in entries]
