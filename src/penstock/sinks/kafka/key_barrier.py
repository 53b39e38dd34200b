"""The turns of records, where at most one record of a key may be under way. Pure.

The next record of a key is due when the one before it is settled: its row is purged, and no restart can restore it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from penstock.change import Change
from penstock.sinks.kafka.shelf import Entry
from penstock.source import RowName

Key = tuple[str, str | bytes | None]


def key_of(change: Change) -> Key:
    """The unit of order: the changes of a topic with the same key."""
    return change.table, change.key


class KeyBarrier:
    """Entries by key, each key's in order; the first of each is due or under way, the others wait."""

    def __init__(self, row_of: Callable[[Change], RowName]) -> None:
        self._row_of = row_of
        self._lines: dict[Key, deque[Entry]] = {}
        self._due: deque[Entry] = deque()
        self._returned: dict[Key, list[RowName]] = {}  # heaps of rows

    @property
    def returned(self) -> int:
        """The number of rows that went back to the table and have not arrived again."""
        return sum(map(len, self._returned.values()))

    def put(self, entry: Entry) -> bool:
        """Add an entry; False if it must go back to the table, because an earlier one of its key did and has not arrived again."""
        key, row = key_of(entry.change), self._row_of(entry.change)
        if key in self._returned and not self._is_in_turn(key, row):
            return False
        line = self._lines.setdefault(key, deque())
        line.append(entry)
        if len(line) == 1:
            self._due.append(entry)
        return True

    def _is_in_turn(self, key: Key, row: RowName) -> bool:
        waited_for = self._returned[key]
        if row > waited_for[0]:
            heappush(waited_for, row)
            return False
        while waited_for and waited_for[0] == row:
            heappop(waited_for)
        if not waited_for:
            del self._returned[key]
        return True

    def due(self, most: int) -> list[Entry]:
        """Take at most `most` of the entries that are due."""
        return [self._due.popleft() for _ in range(min(most, len(self._due)))]

    def again(self, entries: Sequence[Entry]) -> None:
        """These entries are due once more, before all others."""
        self._due.extendleft(reversed(entries))

    def settle(self, entry: Entry) -> None:
        """The row of this entry is purged: the next one of its key is due."""
        key = key_of(entry.change)
        line = self._lines[key]
        line.popleft()
        if line:
            self._due.append(line[0])
        else:
            del self._lines[key]

    def give_back(self, entry: Entry) -> list[Entry]:
        """Remove an entry under way and all later ones of its key: they go back to the table and arrive again in order."""
        key = key_of(entry.change)
        line = list(self._lines.pop(key))
        for one in line:
            heappush(self._returned.setdefault(key, []), self._row_of(one.change))
        return line

    def __bool__(self) -> bool:
        return bool(self._lines)
