"""The content of one transaction, sent again without its poison until it can be committed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from penstock.change import Change
from penstock.cursor import Watermark
from penstock.errors import DeliveryExhausted, PenstockError
from penstock.failpoint import reach
from penstock.poison.condemned import Condemned
from penstock.sink import Assignment
from penstock.sinks.kafka.fault import ErrorScope, condemning, said, unfit, unkept, verdict
from penstock.sinks.kafka.record import Made, Record, Unfit
from penstock.sinks.kafka.settings import KafkaSettings
from penstock.sinks.kafka.shelf import Entry, Suspects, sifted
from penstock.sinks.kafka.transaction import Aborted, Transactions


class OpenTransaction:
    """The changes since the last commit, in order."""

    def __init__(
        self, sink: KafkaSettings, assignment: Assignment, transactions: Transactions, rest: Callable[[float], None]
    ) -> None:
        self._retry, self._assignment, self._transactions, self._rest = sink.retry, assignment, transactions, rest
        self._entries: list[Entry] = []
        self._progress = sink.progress_topic
        self._suspects = Suspects()
        self._alone: int | None = None
        self._watermark: Watermark | None = None
        self._taken = self._tries = 0
        self._latest: Change | None = None
        self.last: Change | None = None

    @property
    def is_begun(self) -> bool:
        """Whether it contains anything."""
        return self._latest is not None

    @property
    def is_committable(self) -> bool:
        """Whether it contains changes, and a mark after all of them."""
        return self._latest is not None and self._watermark is not None

    def add(self, run: Sequence[Made]) -> None:
        """Send these changes, too."""
        self._watermark, self._latest = None, run[-1][0]
        begin = len(self._entries)
        for change, record in run:
            self._taken += 1
            if isinstance(record, Unfit):
                self._condemn(change, unfit(record.reason))
            elif record is not None:
                self._entries.append(Entry(self._taken, change, record))
        self._entries[begin:] = sifted(self._entries[begin:], self._assignment.poison)
        self._until_sent(begin)

    def mark(self, watermark: Watermark) -> None:
        """The changes added so far end here."""
        if self._latest is not None:
            self._watermark = watermark

    def commit(self) -> None:
        """Make the changes durable, with the watermark."""
        assert self._watermark
        while True:
            try:
                self._assignment.poison.secure()
                self._transactions.commit(self._watermark)
                break
            except Aborted as aborted:
                self._undo(aborted)
                self._until_sent()
        reach("sink.sent")
        self.last, self._latest, self._watermark = self._latest, None, None
        self._entries, self._suspects, self._tries = [], Suspects(), 0

    def _until_sent(self, begin: int = 0) -> None:
        while True:
            try:
                return self._send(self._entries[begin:])
            except Aborted as aborted:
                self._undo(aborted)
                begin = 0

    def _send(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            is_suspect = entry.number in self._suspects
            if error := self._send_alone(entry) if is_suspect else self._transactions.produce(entry):
                self._take_out(entry, unfit(error.reason, "correct its topic, key or headers"))
        self._transactions.serve()

    def _send_alone(self, entry: Entry) -> Unfit | None:
        """Send it between two flushes: a failure is its own."""
        self._transactions.flush()
        self._alone = entry.number
        error = self._transactions.produce(entry)
        self._transactions.flush()
        self._alone = None
        return error

    def _undo(self, aborted: Aborted) -> None:
        """Abort, and remove poison, or rest if there is none."""
        failed = self._transactions.abort()
        found = {number: error for number, error in failed.items() if verdict(error) is not ErrorScope.PASSING}
        if not found and verdict(aborted.error) is not ErrorScope.PASSING:
            if self._alone is None:  # one of the records is at fault, and the error does not name it
                self._suspect_all(aborted)
                return
            found = {self._alone: aborted.error}
        self._alone = None
        for entry in [entry for entry in self._entries if entry.number in found]:
            self._judge(entry, found[entry.number])
        self._entries = list(sifted(self._entries, self._assignment.poison))
        if not found:
            self._wait(aborted)

    def _suspect_all(self, aborted: Aborted) -> None:
        """Send each alone from now on; if all of them were, the watermark is at fault."""
        numbers = {entry.number for entry in self._entries}
        if numbers <= self._suspects:
            raise unkept(aborted.error, self._progress)
        self._suspects |= numbers

    def _judge(self, entry: Entry, error: object) -> None:
        if self._suspects.convict(entry.number, verdict(error)):
            assert isinstance(entry.record, Record)
            self._take_out(entry, condemning(error, entry.record.topic))

    def _take_out(self, entry: Entry, error: PenstockError) -> None:
        self._condemn(entry.change, error)
        self._entries = [other for other in self._entries if other is not entry]

    def _condemn(self, change: Change, error: PenstockError) -> None:
        """It has not arrived: its transaction was aborted."""
        self._assignment.poison.condemn_all([Condemned(change, error, is_refused=True)])

    def _wait(self, aborted: Aborted) -> None:
        self._tries += 1
        reason = said(aborted.error)
        if self._retry.is_spent(self._tries):
            raise DeliveryExhausted(f"{reason}, {self._tries} times", "check that the brokers under sink.config run")
        wait = self._retry.wait(self._tries, random.random())
        self._assignment.retried(reason, self._tries, wait)
        self._rest(wait)
