"""The changes that were taken: which are sent next, and up to where all are durable. Pure: no clock, no threads."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, count, islice, repeat, takewhile
from typing import NamedTuple, TypeVar, cast

import pyarrow as pa

from penstock.change import Change, Place, columns_of, from_row
from penstock.rows import Row, rows_of

_T = TypeVar("_T")

_MOST_OF_A_LETTER = 4  # bytes of a character in UTF-8


class Ready(NamedTuple):
    """An offer: the place of each change, its text, and its rows, or none until they are needed.

    A change without text is left out by the format, or parked already. With `keys`, each is about one row, and that is its key.
    `clear_at`: the moment at which no change of the offer had to wait for a letter.
    """

    offered: pa.RecordBatch
    places: Sequence[Place]
    texts: Sequence[str | None]
    rows: Iterable[Sequence[Row]]
    keys: Sequence[str] | None = None
    clear_at: int | None = None


class Offer(NamedTuple):
    """An offer as it is kept: the number of its first change, and its columns; `keys` and `clear_at` as in Ready."""

    start: int
    changes: pa.RecordBatch
    columns: Sequence[pa.Array]
    keys: Sequence[str] | None
    clear_at: int | None


class Waiting(NamedTuple):
    """A change that was taken: its number, the time it was taken, its place, its text, and its rows."""

    number: int
    since: float
    at: Place
    text: str
    rows: Sequence[Row]

    @property
    def place(self) -> str:
        """Its name in keys and messages: the position, with the ordinal if there is one."""
        return f"{self.at[0]}.{self.at[1]}" if self.at[1] else str(self.at[0])

    @property
    def bytes(self) -> int:
        """The size of its text."""
        return len(self.text) if self.text.isascii() else len(self.text.encode())

    @property
    def is_whole(self) -> bool:
        """Whether it is about a whole table."""
        return bool(self.rows) and self.rows[0][1] is None


made: Callable[[Iterable[object]], Waiting] = partial(tuple.__new__, Waiting)
"""Makes a change from its fields in half the time of a call of the class; changes are made by the million."""


class Schedule:
    """Numbers changes as they are taken, and follows each until it is durable.

    - Of changes that share a row, a later one is sent after the earlier one in its batch, or when that one is durable.
    - A change about a whole table is sent alone, when everything before it is durable; later changes of its table wait for it.
    - No change is sent `reach` or more after the first one that is not durable; `reach_aside` more for each batch set aside.
    - `durable` counts changes from the first on, without a gap; a change without text is durable with the one before it.
    - Without `is_parallel` one batch is under way at a time, in order, unless a batch is set `aside`: only then rows are computed.
    """

    def __init__(self, reach: int, *, is_parallel: bool, reach_aside: int = 0) -> None:
        self.taken = self.durable = self.aside = 0
        self._reach, self._reach_aside, self._is_parallel = reach, reach_aside, is_parallel
        self._fresh: deque[Waiting] = deque()
        self._passed: list[Waiting] = []  # could not be sent; all of them precede those in _fresh
        self._busy: set[Row] = set()  # of changes that are under way, or set aside
        self._again: Counter[Row] = Counter()  # their repetitions
        self._blocked: set[Row] = set()  # of passed changes
        self._longest = 0  # the most bytes of a text so far: batches of short ones need no sum
        self._wholes: set[int] = set()  # known changes about whole tables that are not durable
        self._done: set[int] = set()  # durable, after one that is not
        self._offers: deque[Offer] = deque()

    @property
    def waiting(self) -> int:
        """The number of changes that may be sent now."""
        is_near = self._fresh and (self._goes_in_order or self._fresh[0].number < self.durable + self.reach)
        return len(self._fresh) if is_near else 0

    @property
    def reach(self) -> int:
        """The distance from the first change that is not durable up to which others are sent."""
        return self._reach + self.aside * self._reach_aside

    @property
    def _goes_in_order(self) -> bool:
        return not (self._is_parallel or self.aside or self._passed)

    @property
    def since(self) -> float:
        """The time at which the first of these was taken."""
        return self._fresh[0].since

    def last(self) -> Change | None:
        """The last change up to which everything is durable."""
        if not self.durable:
            return None
        return self.change(self.durable - 1)

    def change(self, number: int) -> Change:
        """The change of this number: the last durable one, or one that is not durable yet."""
        offer = self._offer(number)
        return from_row(offer.columns, number - offer.start)

    def keys(self, some: Sequence[Waiting]) -> list[str] | None:
        """The keys of these, which are ordered by number, if each is certainly about one row."""
        found = [(offer.keys, part) for offer, part in self._offered(some)]
        if any(keys is None for keys, _ in found):
            return None
        return _picked([key for keys, part in found for key in (keys or ())[part]], some)

    def are_clear(self, some: Sequence[Waiting], news: Callable[[int], Collection[str | None]]) -> bool:
        """Whether none of these had to wait when it was offered, and none of its keys has a newer letter."""
        for offer, part in self._offered(some):
            if offer.keys is None or offer.clear_at is None:
                return False
            keys = set(news(offer.clear_at))
            if keys and (None in keys or not keys.isdisjoint(offer.keys[part])):
                return False
        return True

    def rows(self, some: Sequence[Waiting]) -> list[tuple[Row, ...]]:
        """The rows of each of these, which are ordered by number."""
        parts = (offer.changes.slice(part.start, part.stop - part.start) for offer, part in self._offered(some))
        return _picked([rows for part in parts for rows in rows_of(part)], some)

    def _offered(self, some: Sequence[Waiting]) -> Iterator[tuple[Offer, slice]]:
        first, limit = some[0].number, some[-1].number + 1
        for offer in self._offers:
            begin, end = max(first - offer.start, 0), min(limit - offer.start, offer.changes.num_rows)
            if begin < end:
                yield offer, slice(begin, end)

    def _offer(self, number: int) -> Offer:
        found: Offer = next(offer for offer in reversed(self._offers) if offer.start <= number)
        return found

    def put(self, ready: Ready, now: float) -> None:
        """Take these changes."""
        self._offers.append(Offer(self.taken, ready.offered, columns_of(ready.offered), ready.keys, ready.clear_at))
        start, self.taken = self.taken, self.taken + len(ready.texts)
        texts = cast(Sequence[str], ready.texts)  # changes without one are dropped below
        self._longest = max(self._longest, _MOST_OF_A_LETTER * max(map(len, filter(None, ready.texts)), default=0))
        changes = list(map(made, zip(count(start), repeat(now), ready.places, texts, ready.rows, strict=False)))
        if None in ready.texts:
            self._done.update(change.number for change in changes if change.text is None)
            changes = [change for change in changes if change.text is not None]
            self._advance()
        if self._is_parallel:
            self._note_wholes(changes)
        self._fresh.extend(changes)

    def take(self, most: int, most_bytes: float = math.inf) -> list[Waiting]:
        """The first changes that can be sent, at most `most` of at most `most_bytes`; they are under way until settled.

        The first change is taken whatever its size.
        """
        if self._goes_in_order:
            return self._take_in_order(most, most_bytes)
        batch: list[Waiting] = []
        end = self.durable + self.reach
        while len(batch) < most and self._fresh and self._fresh[0].number < end:
            if not self._fresh[0].rows:
                self._name_rows(most)
            change = self._fresh.popleft()
            if self._is_free(change):
                most_bytes -= change.bytes
                if batch and most_bytes < 0:
                    self._fresh.appendleft(change)
                    break
                batch.append(change)
                most = 1 if change.is_whole else most
            else:
                self._passed.append(change)
                self._blocked.update(change.rows)
        if self._is_parallel:
            self._occupy(batch)
        return batch

    def _take_in_order(self, most: int, most_bytes: float) -> list[Waiting]:
        most = min(len(self._fresh), most)
        if most * self._longest > most_bytes:
            ends = accumulate(change.bytes for change in islice(self._fresh, most))
            most = min(most, max(1, sum(1 for _ in takewhile(lambda end: end <= most_bytes, ends))))
        return [self._fresh.popleft() for _ in range(most)]

    def _name_rows(self, most: int) -> None:
        some = [self._fresh.popleft() for _ in range(min(len(self._fresh), most))]
        named = [made((*one[:-1], rows)) for one, rows in zip(some, self.rows(some), strict=True)]
        self._note_wholes(named)
        self._fresh.extendleft(reversed(named))

    def _note_wholes(self, changes: Iterable[Waiting]) -> None:
        self._wholes.update(change.number for change in changes if change.is_whole)

    def set_aside(self, batch: Sequence[Waiting]) -> None:
        """These changes are settled in parts, at any time: changes that share no row with them continue."""
        self.aside += 1
        if not self._is_parallel:
            self._note_wholes(batch)
            self._occupy(batch)

    def _occupy(self, batch: Sequence[Waiting]) -> None:
        """No other change of these rows can be sent; a row may occur more than once."""
        rows, others = [row for change in batch for row in change.rows], len(self._busy)
        self._busy.update(rows)
        if len(self._busy) - others < len(rows):
            self._again += Counter(rows) - Counter(set(rows))

    def _is_free(self, change: Waiting) -> bool:
        if self._wholes:
            if change.is_whole:
                return change.number == self.durable
            if not self._are_free([(change.rows[0][0], None)]):
                return False
        return self._are_free(change.rows)

    def _are_free(self, rows: Sequence[Row]) -> bool:
        return self._busy.isdisjoint(rows) and self._blocked.isdisjoint(rows)

    def settle(self, batch: Sequence[Waiting]) -> bool:
        """These are durable; whether further changes can be sent now."""
        before = self.waiting
        if not self._pass_over(batch):
            self._done.update(change.number for change in batch)
        self._advance()
        if not self._goes_in_order:
            self._release(batch)
        if self._wholes:
            self._wholes.difference_update(change.number for change in batch)
        return self.waiting > before

    def _pass_over(self, batch: Sequence[Waiting]) -> bool:
        """Advance past these if no change before the last of them is missing; whether that was so. Faster than one by one."""
        last = batch[-1].number
        missing = last + 1 - self.durable - len(batch)
        inside = [number for number in self._done if number < last] if len(self._done) >= missing > 0 else []
        if len(inside) == missing:
            self.durable = last + 1
            self._done.difference_update(inside)
        return len(inside) == missing

    def _release(self, batch: Sequence[Waiting]) -> None:
        """Return to the passed changes, if these may have blocked them."""
        released = self._vacate([row for change in batch for row in change.rows])
        if self._wholes or not self._blocked.isdisjoint(released):
            self._fresh.extendleft(reversed(self._passed))
            self._passed, self._blocked = [], set()

    def _vacate(self, rows: Sequence[Row]) -> set[Row]:
        """These are no longer under way; the rows without another change under way, since a batch may be settled in parts."""
        gone = Counter(filter(self._again.__contains__, rows))
        released = set(rows) - {row for row, times in gone.items() if times <= self._again[row]}
        self._again -= gone
        self._busy -= released
        return released

    def _advance(self) -> None:
        while self.durable in self._done:
            self._done.remove(self.durable)
            self.durable += 1
        while len(self._offers) > 1 and self._offers[1].start < self.durable:
            self._offers.popleft()


def _picked(found: list[_T], some: Sequence[Waiting]) -> list[_T]:
    """The elements for these changes, from a list for all between the first and the last of them."""
    return found if len(found) == len(some) else [found[one.number - some[0].number] for one in some]
