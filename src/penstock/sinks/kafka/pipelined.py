"""At least once: an idempotent producer with many records under way, in order per key.

There is no thread: the library sends by itself, and reports the fate of records when it is polled.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from random import random
from typing import Any

import confluent_kafka as kafka
import pyarrow as pa

from penstock.change import Change
from penstock.errors import DeliveryExhausted, PenstockError
from penstock.failpoint import reach
from penstock.poison.condemned import Condemned
from penstock.sink import Assignment
from penstock.sinks.kafka import client
from penstock.sinks.kafka.fault import ErrorScope, condemning, ending, is_refusal, said, unfit, verdict
from penstock.sinks.kafka.footing import Footing
from penstock.sinks.kafka.handing import refused
from penstock.sinks.kafka.record import Record, Recorder, Unfit
from penstock.sinks.kafka.settings import KafkaSettings
from penstock.sinks.kafka.shelf import Entry, Shelf, sifted

ROOM = 50_000
CLOSE_SECONDS = 5.0
ANSWER_SECONDS = 1.0
REPORT_SECONDS = 5.0
PRESS_SECONDS = 0.2


class PipelinedDelivery:
    """Keeps the promises of Delivery.

    After a failure nothing more is sent until the outcome of all records is known. Then the failed ones are sent again, in order;
    if one record may have failed the others of its batch, they are sent one at a time.
    """

    def __init__(self, sink: KafkaSettings, assignment: Assignment) -> None:
        self._sink, self._assignment = sink, assignment
        self._recorder, self._shelf = Recorder(sink, assignment), Shelf()
        self._waiting: deque[Entry] = deque()  # to be sent, or to be sent again
        self._failed: list[tuple[Entry, Any]] = []
        self._doubtful = set[int]()  # sent, and may have arrived without an answer
        self._careful_upto = 0
        self._under_way, self._tries, self._rests_until, self._reported_at = 0, 0, 0.0, 0.0
        self._is_broken = self._has_succeeded = False
        self._answers_until = 0.0
        self._failure: PenstockError | None = None
        self._usual: Footing | None = self._made(client.PIPELINED)
        self._careful: Footing | None = None

    def offer(self, changes: pa.RecordBatch, wait: float) -> bool:
        """Send these changes unless there is no room."""
        if not self._wait(self._has_room, wait):
            return False
        for made in self._recorder.records(changes):
            self._take(self._shelf.put(*made))
        self._press_on()
        self._check()
        return True

    def delivered(self) -> Change | None:
        """The last change up to which the brokers have all records."""
        self._press_on()
        return self._shelf.last

    def drain(self, wait: float) -> bool:
        """Wait until the brokers have all records."""
        return self._wait(lambda: not self._shelf, wait)

    def close(self) -> None:
        """Wait for the reports of sent records, and drop the others."""
        if self._usual is not None:
            self._footing.producer.purge(in_queue=True, in_flight=False)
            end = time.monotonic() + CLOSE_SECONDS
            while self._under_way and (left := end - time.monotonic()) > 0:
                self._poll(min(left, 0.1))
        self._usual = self._careful = None

    def _press_on(self) -> None:
        """Serve, and longer if entries wait for their turn: the library sends only the records that it has."""
        end = time.monotonic() + PRESS_SECONDS
        self._serve(0)
        while self._waiting and self._usual and not self._failure and (left := end - time.monotonic()) > 0:
            self._serve(min(left, 0.05))

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        self._serve(0)
        self._check()
        while not condition() and (left := deadline - time.monotonic()) > 0:
            self._serve(min(left, 0.05))
            self._check()
        return condition()

    def _check(self) -> None:
        if self._failure:
            raise self._failure

    def _has_room(self) -> bool:
        return len(self._shelf) < ROOM and not self._failed and not self._waiting

    def _take(self, entry: Entry) -> None:
        if isinstance(entry.record, Unfit):
            self._condemn(entry, unfit(entry.record.reason))
        elif entry.record is None:
            self._shelf.settle(entry.number)
        else:
            self._waiting.append(entry)
            if len(self._waiting) == 1:  # otherwise the first one must wait
                self._go_on()

    def _go_on(self) -> None:
        while self._waiting and not self._failed and not self._failure:
            if self._careful and not self._under_way and self._waiting[0].number > self._careful_upto:
                self._careful, self._is_broken = None, False
            if not self._may_go(self._waiting[0]):
                return
            entry = self._waiting.popleft()
            if sifted([entry], self._assignment.poison):
                self._send(entry)
            else:
                self._shelf.settle(entry.number)

    def _may_go(self, entry: Entry) -> bool:
        assert isinstance(entry.record, Record)
        return not (self._careful and self._under_way) and not self._footing.holds_back(entry.record)

    def _send(self, entry: Entry) -> None:
        assert isinstance(entry.record, Record)
        on_report = partial(self._on_report, entry)
        reach("sink.sending")
        error = refused(entry.record, lambda: self._footing.producer, on_report, lambda: self._poll(0.05))
        if error is None:
            self._under_way += 1
            self._footing.sent(entry.record)
        elif isinstance(error, Unfit):
            told = f"topic {entry.record.topic} never accepts it: {error.reason}"
            self._condemn(entry, DeliveryExhausted(told, "correct its topic, key or headers"))
        elif verdict(error) is ErrorScope.PASSING:
            self._failed.append((entry, error))
        else:  # refused by the library itself: the record was in no batch
            self._condemn(entry, condemning(error, entry.record.topic))

    def _on_report(self, entry: Entry, error: Any, message: Any) -> None:
        assert isinstance(entry.record, Record)
        self._under_way -= 1
        if error is None:
            reach("sink.sent")
            self._has_succeeded, self._tries = True, 0
            self._footing.reported(entry.record, message.partition())
            self._shelf.settle(entry.number)
            self._doubtful.discard(entry.number)
        else:
            self._footing.reported(entry.record, None)
            self._failed.append((entry, error))
            if verdict(error) is ErrorScope.PASSING:
                self._doubtful.add(entry.number)

    def _serve(self, seconds: float) -> None:
        if self._usual is None:
            return
        self._poll(seconds)
        if self._failed and not self._under_way and not self._failure and time.monotonic() >= self._rests_until:
            self._mend()
        self._go_on()

    def _poll(self, seconds: float) -> None:
        try:
            self._footing.producer.poll(seconds)
        except kafka.KafkaException:  # this producer is broken
            self._is_broken, self._answers_until = True, time.monotonic() + ANSWER_SECONDS
        if self._is_broken and self._under_way:
            # It returns records that it has not sent; later also those without an answer, which may have arrived.
            self._footing.producer.purge(in_queue=True, in_flight=time.monotonic() > self._answers_until)

    def _mend(self) -> None:
        if not self._is_broken and self._is_to_rest():
            return
        failed, self._failed = sorted(self._failed, key=itemgetter(0)), []
        suspects = [entry.number for entry, error in failed if verdict(error) is ErrorScope.BATCH]
        if self._is_broken or (suspects and not self._careful):
            self._begin_anew()
        if len(suspects) > 1:
            self._careful_upto, self._careful = suspects[-1], self._made(client.ONE_BY_ONE)
        sent_again = {ErrorScope.PASSING, ErrorScope.BATCH} if len(suspects) > 1 else {ErrorScope.PASSING}
        for entry, error in failed:
            if verdict(error) not in sent_again:
                assert isinstance(entry.record, Record)
                self._condemn(entry, condemning(error, entry.record.topic))
        self._waiting.extendleft(entry for entry, error in reversed(failed) if verdict(error) in sent_again)

    def _is_to_rest(self) -> bool:
        """Whether failed records may be accepted later, and have not rested yet."""
        passing = [error for _, error in self._failed if verdict(error) is ErrorScope.PASSING]
        if not passing or self._rests_until:
            self._rests_until = 0.0
            return False
        self._tries += 1
        reason = said(passing[0])
        if self._sink.retry.is_spent(self._tries):
            self._failure = DeliveryExhausted(f"{reason}, {self._tries} times", "check that the brokers under sink.config run")
            return True
        wait = self._sink.retry.wait(self._tries, random())
        self._rests_until = time.monotonic() + wait
        self._report(reason, wait)
        return True

    def _condemn(self, entry: Entry, error: PenstockError) -> None:
        try:
            is_refused = entry.number not in self._doubtful
            self._assignment.poison.condemn_all([Condemned(entry.change, error, is_refused=is_refused)])
        except PenstockError as raised:
            self._failure = self._failure or raised
        else:
            self._shelf.settle(entry.number)

    def _begin_anew(self) -> None:
        """Replace the producer in use. Starting one takes half a second, so the usual one is replaced when it is needed again."""
        self._is_broken = False
        if self._careful:
            self._careful = self._made(client.ONE_BY_ONE)
        else:
            self._usual = self._made(client.PIPELINED)

    def _made(self, own: Mapping[str, client.Setting]) -> Footing:
        return Footing(kafka.Producer(client.producing(own, self._sink.config, self._assignment.pipeline, self._on_error)))

    @property
    def _footing(self) -> Footing:
        """The producer in use."""
        footing = self._careful or self._usual
        assert footing, "it is closed"
        return footing

    def _on_error(self, error: Any) -> None:
        """An error without a record: the library continues by itself."""
        if is_refusal(error) and not self._has_succeeded:
            self._failure = self._failure or ending(error, "the brokers refuse the client")
        elif len(self._shelf) and time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self._report(said(error), 0.0)

    def _report(self, reason: str, wait: float) -> None:
        self._reported_at = time.monotonic()
        self._assignment.retried(reason, max(1, self._tries), wait)
