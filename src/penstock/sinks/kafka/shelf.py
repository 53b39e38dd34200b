"""The changes that were taken and are not settled yet, in order. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from penstock.change import Change
from penstock.poison.policy import Poison
from penstock.sinks.kafka.fault import ErrorScope
from penstock.sinks.kafka.record import Record, Unfit


class Entry(NamedTuple):
    """A change under way and its record, or the reason why it has none; None if nothing is sent for it."""

    number: int
    change: Change
    record: Record | Unfit | None


def sifted(entries: Sequence[Entry], poison: Poison) -> Sequence[Entry]:
    """The entries to send now; the others wait for a dead letter and are parked."""
    if not poison.has_letters:
        return entries
    left = {id(change) for change in poison.sift([entry.change for entry in entries])}
    return [entry for entry in entries if id(entry.change) in left]


class Suspects(set[int]):
    """The numbers of entries that failed together with others: each of them is sent alone."""

    def convict(self, number: int, fault: ErrorScope) -> bool:
        """Whether a failed entry is poison; if not, it becomes a suspect."""
        is_poison = fault is ErrorScope.RECORD or number in self
        if not is_poison:
            self.add(number)
        return is_poison


class Shelf:
    """Entries are settled in any order; `last` moves only over settled ones."""

    def __init__(self) -> None:
        self.taken = 0
        self.last: Change | None = None
        self._entries: deque[Entry] = deque()
        self._settled: set[int] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, change: Change, record: Record | Unfit | None) -> Entry:
        """Add a change."""
        entry = Entry(self.taken, change, record)
        self._entries.append(entry)
        self.taken += 1
        return entry

    def settle(self, number: int) -> None:
        """The entry is durable, or needs no delivery."""
        self._settled.add(number)
        while self._entries and self._entries[0].number in self._settled:
            settled = self._entries.popleft()
            self._settled.discard(settled.number)
            self.last = settled.change
