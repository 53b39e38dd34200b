"""The rows that have dead letters, as far as is known without a query to the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, takewhile
from operator import itemgetter
from threading import Lock
from typing import NamedTuple

from penstock.change import Lane, Place
from penstock.rows import Row, bound_by


class Hold(NamedTuple):
    """The part of a letter that decides which changes wait for it."""

    incarnation: str
    lane: Lane
    place: Place
    rows: Sequence[Row]
    holds: bool = True
    is_overtaken: bool = False

    def is_before(self, other: Hold) -> bool:
        """Whether it comes before a change. Letters of other lanes or incarnations do, and others of the same position: a row of a
        range that is read anew may get another ordinal.
        """
        if (self.incarnation, self.lane) != (other.incarnation, other.lane):
            return True
        return self.place[0] <= other.place[0] and self.place != other.place


class ParkedKeys:
    """The rows that have letters. It may contain letters that are gone, but never lacks one."""

    def __init__(self, holds: Iterable[Hold] = ()) -> None:
        self._letters: set[tuple[str, Lane, Place]] = set()
        self._places: set[Place] = set()
        self._first: dict[Row, Hold] = {}
        self._tables: dict[str, Hold] = {}  # the first letter of each table, for changes about a whole table
        self._passed: set[Row] = set()
        self._known: set[Row] = set()
        self._keys: set[str | None] = set()  # of all tables
        self._told: dict[str | None, int] = {}  # the moment of the last letter of each key, in order of moments
        self._moment, self._telling = 0, Lock()  # one thread calls `news` while another adds letters
        self._last: Place = (-1, -1)
        self._wholes: set[str] = set()  # tables with a letter about all of their rows
        for hold in holds:
            self.add(hold)

    def __bool__(self) -> bool:
        return bool(self._letters)

    def add(self, hold: Hold) -> None:
        """Add a letter."""
        self._letters.add((hold.incarnation, hold.lane, hold.place))
        self._places.add(hold.place)
        self._last = max(self._last, hold.place)
        self._known.update(hold.rows)
        self._keys.update(key for _, key in hold.rows)
        self._log_keys(key for _, key in hold.rows)
        self._wholes.update(table for table, key in hold.rows if key is None)
        if hold.is_overtaken and not hold.holds:
            self._passed.update(hold.rows)
            return
        for row in hold.rows:
            if row not in self._first or hold.is_before(self._first[row]):
                self._first[row] = hold
            if row[0] not in self._tables or hold.is_before(self._tables[row[0]]):
                self._tables[row[0]] = hold

    def _log_keys(self, keys: Iterable[str | None]) -> None:
        with self._telling:
            for key in keys:
                self._moment += 1
                self._told.pop(key, None)  # moves the key to the end
                self._told[key] = self._moment

    def forget(self, rows: Iterable[Row]) -> None:
        """Remove the letters of these rows."""
        for row in rows:
            self._first.pop(row, None)
            self._first.pop((row[0], None), None)
            self._passed.discard(row)
            self._known.discard(row)

    @property
    def moment(self) -> int:
        """Now, for `news`."""
        return self._moment

    def news(self, since: int) -> list[str | None]:
        """The keys of letters that were added after that moment; None for a whole table."""
        with self._telling:
            return [key for key, _ in takewhile(lambda told: told[1] > since, reversed(self._told.items()))]

    def near(self, places: Sequence[Place], keys: Sequence[str] | None) -> list[int]:
        """The indexes of changes, with these places, that may be letters or wait for one: quick with `keys`, of one row each."""
        if keys is None or self._wholes:
            return list(range(len(places)))
        letters = self._places.intersection(places) if places[0] <= self._last else set()
        known = self._keys.intersection(keys)
        if not known and not letters:
            return []
        return [index for index, (place, key) in enumerate(zip(places, keys, strict=True)) if key in known or place in letters]

    def among(self, places: Sequence[Place], rows: Sequence[Sequence[Row]]) -> list[int]:
        """The indexes of changes, with these places and rows, that may be letters or wait for one.

        If one of them is about several rows, all changes of those rows are included.
        """
        each = list(chain.from_iterable(rows))
        letters, known = self._places.intersection(places), self._known.intersection(each)
        if self._wholes or None in map(itemgetter(1), each):
            known.update(row for row in each if row[1] is None or row[0] in self._wholes)
        found = {index for index, some in enumerate(rows) if not known.isdisjoint(some)} if known else set()
        if letters:
            found.update(index for index, place in enumerate(places) if place in letters)
        if any(len(rows[index]) > 1 or rows[index][0][1] is None for index in found):
            found = _spread(found, rows)
        return sorted(found)

    def concerns(self, one: Hold) -> bool:
        """Whether this change may be a letter, or come after one."""
        if (one.incarnation, one.lane, one.place) in self._letters:
            return True
        for row in one.rows:
            wholes = self._tables.get(row[0]) if row[1] is None else self._first.get((row[0], None))
            if any(first and first.is_before(one) for first in (self._first.get(row), wholes)):
                return True
        return False

    def is_passed(self, rows: Iterable[Row]) -> bool:
        """Whether later changes of these rows are delivered past a letter."""
        return not self._passed.isdisjoint(rows)


def _spread(found: set[int], rows: Sequence[Sequence[Row]]) -> set[int]:
    """These, and all that share a row with one of them, directly or through others."""
    while True:
        is_bound = bound_by({row for index in found for row in rows[index]})
        grown = {index for index, some in enumerate(rows) if is_bound(some)}
        if grown <= found:
            return found
        found = found | grown
