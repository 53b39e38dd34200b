"""What was taken and is not settled yet, in the order it was taken. Pure."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from penstock.change import Change
from penstock.sinks.kafka.record import Record


class Entry(NamedTuple):
    """A change on its way, and the record that is sent for it; None if nothing is."""

    number: int
    change: Change
    record: Record | None


class Shelf:
    """Entries are settled in any order; what counts is up to where all of them are."""

    def __init__(self) -> None:
        self.taken = 0
        self.last: Change | None = None
        self._entries: deque[Entry] = deque()
        self._settled: set[int] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, number: int) -> Entry:
        return self._entries[number - self._entries[0].number]

    def put(self, change: Change, record: Record | None) -> Entry:
        """Take one more."""
        entry = Entry(self.taken, change, record)
        self._entries.append(entry)
        self.taken += 1
        return entry

    def settle(self, number: int) -> None:
        """This one is durable, or nothing is to be done about it."""
        self._settled.add(number)
        while self._entries and self._entries[0].number in self._settled:
            settled = self._entries.popleft()
            self._settled.discard(settled.number)
            self.last = settled.change
