"""At least once: an idempotent producer with many records under way, in order per key.

There is no thread of ours: the library sends by itself, and tells what became of records whenever it is polled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from random import random
from typing import TYPE_CHECKING, Any

import confluent_kafka as kafka
import pyarrow as pa

from penstock.change import Change
from penstock.errors import DeliveryExhausted, PenstockError
from penstock.event import DeliveryRetried
from penstock.failpoint import reach
from penstock.sink import Assignment
from penstock.sinks.kafka import client
from penstock.sinks.kafka.fault import Verdict, condemning, ending, is_refusal, verdict
from penstock.sinks.kafka.handing import refused
from penstock.sinks.kafka.record import Recorder, Unfit
from penstock.sinks.kafka.shelf import Entry, Shelf

if TYPE_CHECKING:
    from penstock.sinks.kafka.sink import KafkaSink

ROOM = 50_000
CLOSE_SECONDS = 5.0
ANSWER_SECONDS = 1.0
TELL_SECONDS = 5.0


class PipelinedDelivery:
    """Keeps the promises of Delivery.

    When a record fails, nothing more is sent until the outcome of all others is known. Then those that failed go again in order;
    where one may have spoilt it for others that were sent with it, by a producer that sends each by itself.
    """

    def __init__(self, sink: KafkaSink, assignment: Assignment) -> None:
        self._sink, self._assignment = sink, assignment
        self._recorder, self._shelf = Recorder(sink.style, assignment), Shelf()
        self._failed: dict[int, Any] = {}
        self._under_way, self._tries, self._rests_until, self._told_at = 0, 0, 0.0, 0.0
        self._is_careful = self._is_broken = self._has_succeeded = False
        self._answers_until = 0.0
        self._failure: PenstockError | None = None
        self._producer: Any = self._made()

    def offer(self, changes: pa.RecordBatch, wait: float) -> bool:
        """Send these changes unless there is no room."""
        if not self._wait(self._has_room, wait):
            return False
        if self._is_careful:
            self._is_careful = False
            self._producer = self._made()
        for change, record in self._recorder.records(changes):
            self._take(change, record)
        self._serve(0)
        self._check()
        return True

    def delivered(self) -> Change | None:
        """The last change up to which the brokers have all."""
        self._serve(0)
        return self._shelf.last

    def drain(self, wait: float) -> bool:
        """Wait for the brokers to have everything."""
        return self._wait(lambda: not self._shelf, wait)

    def close(self) -> None:
        """Let what was sent have its answer, and drop what was not."""
        if self._producer is not None:
            self._producer.purge(in_queue=True, in_flight=False)
            self._producer.flush(CLOSE_SECONDS)
            self._producer = None

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
        return not self._shelf if self._is_careful else len(self._shelf) < ROOM and not self._failed

    def _take(self, change: Change, record: Any) -> None:
        is_unfit = isinstance(record, Unfit)
        entry = self._shelf.put(change, None if is_unfit else record)
        if is_unfit:
            self._condemn(entry, DeliveryExhausted(f"no record can be made of it: {record.reason}", "correct what wrote it"))
        elif entry.record is None:
            self._shelf.settle(entry.number)
        else:
            self._take_up(entry)

    def _is_sifted(self, entry: Entry) -> bool:
        poison = self._assignment.poison
        return not poison.is_idle and not poison.sift([entry.change])

    def _send(self, entry: Entry) -> None:
        assert entry.record
        heard = partial(self._hear_of, entry.number)
        error = refused(entry.record, lambda: self._producer, heard, lambda: self._poll(0.05))
        if error is None:
            self._under_way += 1
        elif isinstance(error, Unfit):
            told = f"topic {entry.record.topic} never takes it: {error.reason}"
            self._condemn(entry, DeliveryExhausted(told, "correct its topic, key or headers"))
        else:
            self._hear_at_once(entry, error)

    def _hear_at_once(self, entry: Entry, error: Any) -> None:
        """The library itself has refused a record: it was in no batch yet."""
        if verdict(error) is Verdict.PASSING:
            self._failed[entry.number] = error
        else:
            self._condemn_for(entry, error)

    def _hear_of(self, number: int, error: Any, _: Any) -> None:
        self._under_way -= 1
        if error is None:
            reach("sink.sent")
            self._has_succeeded, self._tries = True, 0
            self._shelf.settle(number)
        else:
            self._failed[number] = error

    def _serve(self, seconds: float) -> None:
        if self._producer is None:
            return
        self._poll(seconds)
        if self._failed and not self._under_way and not self._failure and time.monotonic() >= self._rests_until:
            self._mend()

    def _poll(self, seconds: float) -> None:
        try:
            self._producer.poll(seconds)
        except kafka.KafkaException:  # this producer can do nothing more
            self._is_broken, self._answers_until = True, time.monotonic() + ANSWER_SECONDS
        if self._is_broken and self._under_way:
            # What it has not sent yet it gives back; what waits for an answer that does not come, too, though it may be there.
            self._producer.purge(in_queue=True, in_flight=time.monotonic() > self._answers_until)

    def _mend(self) -> None:
        """Send again what failed, in order, without what is poison."""
        if not self._is_broken and self._is_to_rest():
            return
        failed = [(self._shelf[number], self._failed[number]) for number in sorted(self._failed)]
        self._failed.clear()
        if not self._is_careful and any(error and verdict(error) is Verdict.BATCH for _, error in failed):
            self._is_careful = self._is_broken = True
        elif self._is_careful:
            failed = [one for one in failed if not self._is_condemned(*one, Verdict.BATCH)]
        failed = [one for one in failed if not self._is_condemned(*one, Verdict.RECORD)]
        if self._is_broken:
            self._is_broken, self._producer = False, self._made()
        for entry, _ in failed:
            self._take_up(entry)

    def _is_condemned(self, entry: Entry, error: Any, fault: Verdict) -> bool:
        is_poison = error is not None and verdict(error) is fault
        if is_poison:
            self._condemn_for(entry, error)
        return is_poison

    def _take_up(self, entry: Entry) -> None:
        if self._is_sifted(entry):
            self._shelf.settle(entry.number)
        elif self._failed:
            self._failed[entry.number] = None  # it waits for its turn
        else:
            self._send(entry)

    def _is_to_rest(self) -> bool:
        """Whether records failed that may be taken later, and have not rested yet."""
        passing = [error for error in self._failed.values() if error and verdict(error) is Verdict.PASSING]
        if not passing or self._rests_until:
            self._rests_until = 0.0
            return False
        self._tries += 1
        reason = f"{passing[0].name().lstrip('_')}: {passing[0].str()}"
        if self._sink.retry.is_spent(self._tries):
            self._failure = DeliveryExhausted(f"{reason}, {self._tries} times", "see that the brokers under sink.config run")
            return True
        wait = self._sink.retry.wait(self._tries, random())
        self._rests_until = time.monotonic() + wait
        self._tell(reason, wait)
        return True

    def _condemn_for(self, entry: Entry, error: Any) -> None:
        assert entry.record
        self._condemn(entry, condemning(error, entry.record.topic))

    def _condemn(self, entry: Entry, error: PenstockError) -> None:
        try:
            self._assignment.poison.condemn(entry.change, error)
        except PenstockError as raised:
            self._failure = self._failure or raised
        else:
            self._shelf.settle(entry.number)

    def _made(self) -> Any:
        alone = {"batch.num.messages": 1} if self._is_careful else {}
        return kafka.Producer(client.pipelined(self._sink.config, self._assignment.pipeline, self._hear) | alone)

    def _hear(self, error: Any) -> None:
        """What the library has to say beside the fate of records: it goes on by itself."""
        if is_refusal(error) and not self._has_succeeded:
            self._failure = self._failure or ending(error, "the brokers do not let us in")
        elif len(self._shelf) and time.monotonic() - self._told_at >= TELL_SECONDS:
            self._tell(f"{error.name().lstrip('_')}: {error.str()}", 0.0)

    def _tell(self, reason: str, wait: float) -> None:
        self._told_at = time.monotonic()
        self._assignment.tell(
            DeliveryRetried(pipeline=self._assignment.pipeline, reason=reason, tries=max(1, self._tries), wait_seconds=wait)
        )
