"""The state topic: one partition with requests, which every process applies to the same state machine.

Offsets are dense, because no record is transactional: a hole means that records were removed. A leader appends a checkpoint (the
whole state after some offset) from time to time, and deletes the records before that offset.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from threading import RLock
from typing import Any, TypeVar

from penstock.coordinators.kafka import topics
from penstock.coordinators.kafka.address import Address
from penstock.coordinators.kafka.client import Ear, confluent, settings
from penstock.coordinators.kafka.state_machine import VERSION, StateMachine
from penstock.errors import PenstockError, StateInvalid, StateUnavailable
from penstock.text.printable import printable

PART = 400_000
"""Most characters of a record: brokers accept a megabyte by default."""
GONE_SECONDS = 6.0
"""Seconds for which brokers must report that the topic, or its end, is gone, before the state counts as lost."""
CHECKPOINT = 20_000
"""Number of records after which a checkpoint is due."""
ANEW = -1
"""The end of a state that must be read anew."""

T = TypeVar("T")

_logger = logging.getLogger("penstock.state")

_NO_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC")
_GONE = "restore the topic; or abandon it and its registrations: penstock forget FILE, then penstock run FILE --from ..."


class StateLog:
    """The log of one state topic, which all threads of a process share."""

    def __init__(self, place: Address) -> None:
        self._kafka, self._place, self._ear = confluent(), place, Ear(place)
        self._partition = self._kafka.TopicPartition(place.topic, 0)
        self._writer, self._number = secrets.token_hex(8), 0
        self._turn = RLock()
        self.store: str | None = None
        """The random id of the store, from its first record; None as long as the topic is missing or empty."""
        self._machine, self._next, self._from = StateMachine(), ANEW, 0
        self._extent = 0  # the highest end that the topic ever had
        self._answers: dict[int, Any] = {}
        self._doubted_since: float | None = None
        self._producer = self._admin = None
        self._is_aligned = False  # whether the next record of the consumer is that after the state

    def look(self, see: Callable[[StateMachine], T]) -> T:
        """The part of the current state that `see` returns; no other thread changes the state meanwhile."""
        with self._turn:
            self._catch_up()
            return see(self._machine)

    def write(self, do: str, **asked: Any) -> Any:
        """Append a request, and return its result. Raises StateUnavailable if the result is unknown."""
        with self._turn:
            self._catch_up_or_open()
            self._number += 1
            offset = self._append({"do": do, "by": self._writer, "n": self._number, **asked})
            self._fold_up_to(offset + 1)
            return self._answers.get(self._number)

    def prepare(self) -> None:
        """Make both topics if they are missing, with a first record. Raises StateInvalid for a topic that deletes records."""
        with self._turn:
            with self._administering() as admin:
                topics.make(admin, self._place, self._ear)
            self._catch_up_or_open()

    def examine(self) -> None:
        """Raise the error that prevents the use of this store; nothing is changed."""
        with self._turn:
            with self._administering() as admin:
                topics.examine(admin, self._place, self._ear)
            self._catch_up()

    def members(self, group: str) -> Sequence[str]:
        """The client ids of the members of a group."""
        with self._turn, self._administering() as admin:
            return topics.members(admin, self._place, self._ear, group)

    def tidy(self) -> None:
        """Append a checkpoint if one is due, and delete the records before it."""
        with self._turn:
            if (end := self._next) - self._from < CHECKPOINT:
                return
            book = self._machine.written()
            self._append({"do": "checkpoint", "behind": end, "store": self.store, "version": VERSION, "book": book})
            self._from = end
            with self._administering() as admin:
                if not topics.delete_before(admin, self._place, self._ear, end):
                    _logger.warning("%s only grows: this user may not delete records of the topic", printable(self._place.shown))

    def _catch_up_or_open(self) -> None:
        """Apply all records; append the first one to an empty topic, where a second one has no effect."""
        self._catch_up()
        if not self.store:
            self._append({"do": "open", "version": VERSION, "store": secrets.token_hex(8)})
            self._catch_up()
        if not self.store:
            raise StateUnavailable(f"the first record of the state topic {self._place.shown} cannot be read yet", "nothing to do")

    # Writing.

    def _append(self, request: Mapping[str, Any]) -> int:
        """Write a request, in parts if it is long; returns the offset of its last record."""
        text = json.dumps(request, separators=(",", ":"))
        if len(text) <= PART:
            return self._send(text)
        parts = [text[start : start + PART] for start in range(0, len(text), PART)]
        name = secrets.token_hex(8)
        numbered = [{"do": "part", "id": name, "index": index, "of": len(parts), "text": part} for index, part in enumerate(parts)]
        return [self._send(json.dumps(part)) for part in numbered][-1]

    def _send(self, text: str) -> int:
        """Write one record; returns its offset. A producer that failed is not used again: its pending records have old numbers."""
        producer, self._producer = self._producer or self._new_producer(), None
        answers = list[Any]()
        with self._ear.translated("writing"):
            producer.produce(self._place.topic, text.encode(), self.store, 0, on_delivery=lambda *answer: answers.append(answer))
            deadline = time.monotonic() + 2 * self._place.patience
            while not answers and time.monotonic() < deadline:
                producer.poll(0.05)
        if not answers:
            raise StateUnavailable(f"cannot use the state in {self._place.shown}: writing: no answer")
        error, message = answers[0]
        if error is not None:
            raise self._ear.told(error, "writing")
        self._producer = producer
        return int(message.offset())

    def _new_producer(self) -> Any:
        """Not idempotent, which would cost half a second: requests have numbers of their own."""
        timeout = int(self._place.patience * 1000)
        own = {"acks": "all", "linger.ms": 0, "message.timeout.ms": timeout, "compression.type": "gzip"}
        return self._kafka.Producer(settings(self._place, self._ear, **own))

    # Reading.

    def _catch_up(self) -> None:
        """Apply all records that the topic has at the start of this call."""
        low, high = self._ends()
        self._ear.forget()
        if high < self._extent:
            raise self._doubted("it is shorter than before: it was made anew, or has lost its newest records")
        self._doubted_since, self._extent = None, high
        if high == 0:
            return
        if self._next < low:
            self._begin(low, high)
        self._fold_up_to(high)

    def _ends(self) -> tuple[int, int]:
        """First offset and next one. Brokers that start, or move the partition, are asked again."""
        deadline = time.monotonic() + self._place.patience
        while True:
            try:
                low, high = self._asker.get_watermark_offsets(self._partition, self._place.patience, cached=False)
            except self._kafka.KafkaException as error:
                meant = self._meant(error.args[0])
                if meant.name() in _NO_TOPIC and not self.store:
                    return 0, 0
                told = self._told(meant)
                if time.monotonic() > deadline or isinstance(told, StateInvalid):
                    raise told from None
                time.sleep(0.02)
            else:
                return low, high

    def _meant(self, error: Any) -> Any:
        """The error of a broker: a client that reaches no broker also reports that the topic does not exist."""
        if error.name() not in _NO_TOPIC:
            return error
        try:
            found = self._asker.list_topics(self._place.topic, self._place.patience).topics[self._place.topic]
        except self._kafka.KafkaException as unreached:
            return unreached.args[0]
        return found.error or self._kafka.KafkaError(self._kafka.KafkaError.LEADER_NOT_AVAILABLE)

    def _told(self, error: Any) -> PenstockError:
        self._asker.poll(0)  # reports the cause to `self._ear`
        if error.name() in _NO_TOPIC:
            return self._doubted("it is gone")
        self._doubted_since = None
        return self._ear.told(error, "reading")

    def _doubted(self, fact: str) -> PenstockError:
        """A loss is final only if it lasts: brokers that have just started have not loaded all records yet."""
        self._doubted_since = self._doubted_since or time.monotonic()
        if time.monotonic() - self._doubted_since > GONE_SECONDS:
            return self._invalid(fact)
        return StateUnavailable(f"the state topic {self._place.shown}: {fact}", "nothing to do, if the brokers have just started")

    def _begin(self, low: int, high: int) -> None:
        """Start anew: at the first record, or at the first checkpoint after which no record is missing."""
        self._machine, self._next, self._from, self._is_aligned = StateMachine(), ANEW if low else 0, low, False
        if not low:
            return
        records = list(self._records(low, high, 10 * self._place.patience))
        found = _checkpoint_in(records, low)
        if not found:
            raise self._invalid("its first records were removed, but not by Penstock")
        self._check(found)
        self._machine = StateMachine.read(found["book"])
        for record in records:
            if record[0] >= found["behind"]:
                self._fold(*record)

    def _fold_up_to(self, end: int) -> None:
        self._answers.clear()
        for record in self._records(self._next, end, self._place.patience):
            self._fold(*record)

    def _records(self, at: int, end: int, patience: float) -> Iterator[tuple[int, str, str]]:
        """The records from one offset up to another, each once and without gaps."""
        if at >= end:
            return
        if not self._is_aligned:
            with self._ear.translated("reading"):
                self._consumer.assign([self._kafka.TopicPartition(self._place.topic, 0, at)])
        self._is_aligned = False  # until all records are applied
        deadline = time.monotonic() + patience
        while at < end:
            if time.monotonic() > deadline:
                raise StateUnavailable(f"cannot use the state in {self._place.shown}: reading: no answer")
            for message in self._consumer.consume(min(1000, end - at), 0.1):
                if error := message.error():
                    self._pass_over(error)
                elif message.offset() > at:
                    raise self._invalid(f"record {at} was removed")
                elif message.offset() == at:
                    yield at, _text(message.key()), _text(message.value())
                    at += 1
        self._is_aligned = True

    def _pass_over(self, error: Any) -> None:
        """Ignore errors of the consumer that pass; raise the others."""
        if error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            raise StateUnavailable(f"old records of the state in {self._place.shown} were just deleted", "nothing to do")
        if not error.retriable() and error.name() not in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE"):
            raise self._ear.told(error, "reading")

    def _fold(self, offset: int, key: str, text: str) -> None:
        """Apply a record. If the log has a request twice, the result of the first one counts."""
        self._next = ANEW  # a record that cannot be applied makes every read fail: the next one begins anew
        try:
            request = json.loads(text)
            if request["do"] == "part":
                whole = self._machine.add_part(request)
                request = json.loads(whole) if whole else None
            if request and request["do"] in ("open", "checkpoint"):
                if not self.store:
                    self._check(request)
            elif request:
                if key != self.store:
                    raise self._invalid("it was made anew, or another program writes to it")
                answer = self._machine.apply(request, offset)
                if request["by"] == self._writer:
                    self._answers.setdefault(request["n"], answer)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._invalid(f"its record {offset} is not from Penstock, or of a later version ({error!r})") from error
        self._next = offset + 1

    def _check(self, facts: Mapping[str, Any]) -> None:
        if facts["version"] > VERSION:
            raise self._invalid(f"it has version {facts['version']}, and this program reads versions up to {VERSION}")
        if self.store not in (None, facts["store"]):
            raise self._invalid("it was made anew")
        self.store = facts["store"]

    @cached_property
    def _consumer(self) -> Any:
        return self._reader()

    @cached_property
    def _asker(self) -> Any:
        """A client for queries only: on the connection of the consumer they would wait for a fetch."""
        return self._reader()

    def _reader(self) -> Any:
        own = {"group.id": f"{self._place.topic}.reader", "enable.auto.commit": False, "auto.offset.reset": "error"}
        return self._kafka.Consumer(settings(self._place, self._ear, **own))

    @contextmanager
    def _administering(self) -> Iterator[Any]:
        """A client that failed is not used again: it may never find the brokers again."""
        admin, self._admin = self._admin or topics.admin(self._place, self._ear), None
        yield admin
        self._admin = admin

    def _invalid(self, fact: str) -> StateInvalid:
        return StateInvalid(f"the state topic {self._place.shown}: {fact}", _GONE)


def _checkpoint_in(records: Sequence[tuple[int, str, str]], low: int) -> dict[str, Any] | None:
    """The first whole checkpoint after which no record is missing."""
    parts = StateMachine()
    for _, _, text in records:
        if '"checkpoint"' not in text and '"part"' not in text:
            continue
        request = json.loads(text)
        if request["do"] == "part":
            whole = parts.add_part(request)
            request = json.loads(whole) if whole else {"do": "part"}
        if request["do"] == "checkpoint" and request["behind"] >= low:
            return dict(request)
    return None


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode(errors="replace")


_open: dict[object, StateLog] = {}  # never closed in a forked child: their threads are the parent's


def shared(place: Address) -> StateLog:
    """The one log of this process for this place."""
    settings = sorted(place.settings.items())
    name = os.getpid(), place.servers, place.topic, place.leader_topic, place.patience, *settings
    return _open.setdefault(name, StateLog(place))
