"""Which changes of a batch are poison: found by sending parts of it. Pure: no clock, no threads, no requests."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter

from penstock.delivery.schedule import Waiting
from penstock.poison.parked_keys import Place
from penstock.rows import Row, bound_by


class Fault(Enum):
    """Whether a failure is the changes' own fault."""

    NONE = "none"  # the destination was not reached, or asked for time
    POSSIBLE = "possible"  # after the last try
    LIKELY = "likely"  # no further try can help, but so many have failed that the destination may be at fault
    CERTAIN = "certain"


FEW = 3
"""Requests between two rests that are enough to see that nothing is taken."""

AT = attrgetter("at")
_Split = tuple[list[Waiting], list[Waiting]]


@dataclass(eq=False, slots=True)
class Part:
    """Changes that are sent together. `failures` are all tries that failed, `refusals` those that may be the changes' own fault.

    `sent_at`: how many requests had been accepted when this was last sent; `doubted_at`: the same, of a change that was then
    refused, alone, for the last time that is allowed. `is_refused`: every answer said that it was not taken.
    """

    changes: Sequence[Waiting]
    attempts: int = 0
    failures: int = 0
    refusals: int = 0
    is_tried: bool = False
    sent_at: int = 0
    doubted_at: int | None = None
    is_refused: bool = True
    sibling: Part | None = None  # the second half, of a first one

    @property
    def is_suspect(self) -> bool:
        """Whether it was refused as a part of something, and not by itself."""
        return self.refusals > 0 and not self.is_tried and self.doubted_at is None

    def is_cleared(self, taken: int) -> bool:
        """Whether the destination took something since it was doubted, so that the next refusal is its own fault."""
        return self.doubted_at is not None and taken > self.doubted_at

    def holding(self, changes: Sequence[Waiting]) -> Part:
        """Another one of these, to which the same has happened, but which was not sent itself."""
        return Part(changes, 0, self.failures, self.refusals, False, self.sent_at, self.doubted_at, self.is_refused)

    def halves(self) -> list[Part]:
        """Two of half the size, or one again; what failed has failed for both."""
        middle = (len(self.changes) + 1) // 2
        found = (self.changes[:middle], self.changes[middle:])
        made = [self.holding(some) for some in found if some]
        made[0].sibling = made[-1] if len(made) > 1 else None
        return made


class Bisection:
    """The parts of a batch that are not settled yet, in order.

    - A part whose tries are spent is halved, until a change is refused alone. Then it is doubted, but not condemned: the
      destination may be in trouble. It is condemned if the destination takes something else, and then refuses it once more.
    - As long as a change is in doubt, further parts are halved one at a time, after rests, and few are sent between two rests,
      first those that failed least: an outage costs few requests.
    - Of changes that share a row, no later one is sent before the earlier one is settled.
    - A part that is too large goes in halves at once, which costs no try and puts nothing in doubt.
    - `in_order`: no part is sent before those before it are settled, whatever their rows.
    - `taken` is how many requests the destination has taken, on any connection: told with every question.
    """

    def __init__(self, batch: Sequence[Waiting], is_spent: Callable[[int], bool], *, in_order: bool = False) -> None:
        self.parts, self._in_order = [Part(batch)], in_order
        self._is_spent, self._turn, self._most = is_spent, 0, len(batch)
        self._failed_since, self._was_given = 0, False  # the last rest, in doubt

    @property
    def is_over(self) -> bool:
        """Whether everything is settled."""
        return not self.parts

    @property
    def is_in_doubt(self) -> bool:
        """Whether it would help if the destination took something else."""
        return any(part.doubted_at is not None for part in self.parts)

    def next(self, taken: int) -> Part | None:
        """The part to send now; None if all wait for a rest."""
        ready = self._ready(taken)
        if not self.is_in_doubt:
            return next(ready, None)
        return min(ready, key=lambda part: (not part.is_cleared(taken), part.attempts > 0, part.failures), default=None)

    def _ready(self, taken: int) -> Iterator[Part]:
        """What may be sent, without waiting for another."""
        blocked: set[Row] = set()
        is_enough = self.is_in_doubt and self._failed_since >= FEW
        for part in self.parts[:1] if self._in_order else self.parts:
            is_due = part.is_cleared(taken) or not (part.is_tried or is_enough)
            if is_due and not _overlap(blocked, part.changes):
                yield part
            blocked.update(row for change in part.changes for row in change.rows)

    def wants_more(self, taken: int) -> bool:
        """Whether what waits behind should be a witness: a batch of it after each rest, if all here have failed by themselves."""
        return self.is_in_doubt and not self._was_given and all(part.attempts for part in self._ready(taken))

    def taken(self, part: Part) -> None:
        """The destination has it. So its other half was the reason why both were refused, and is halved without being sent."""
        self.parts.remove(part)
        self._failed_since = 0
        if (other := part.sibling) and other in self.parts and not other.is_tried and len(other.changes) > 1:
            self._halve(other)

    def split(self, part: Part) -> None:
        """It was too large: that says nothing about its halves, also not when one of them is taken."""
        at, halves = self.parts.index(part), part.halves()
        halves[0].sibling = None
        self.parts[at : at + 1] = halves

    def emptied(self, part: Part) -> None:
        """Nothing of it is left to send."""
        self.parts.remove(part)

    def failed(self, part: Part, fault: Fault) -> Waiting | None:
        """What is condemned now, if anything. What was taken after it was sent does not speak against it yet."""
        self._failed_since += self.is_in_doubt
        part.failures += 1
        part.refusals += fault is not Fault.NONE
        part.is_tried = True
        if fault is Fault.NONE or (fault is Fault.POSSIBLE and not self._is_spent(part.refusals)):
            part.doubted_at = None if part.doubted_at is None else part.sent_at
            return None
        if len(part.changes) > 1:
            if fault is Fault.CERTAIN or not self.is_in_doubt:
                self._halve(part)
            return None
        if fault is Fault.CERTAIN or part.is_cleared(part.sent_at):
            self._join_behind(part)
            self.parts.remove(part)
            return part.changes[0]
        part.doubted_at = part.sent_at if part.doubted_at is None else part.doubted_at
        return None

    def named(self, part: Part, places: Collection[Place]) -> list[Waiting]:
        """What is condemned because the destination has named it; the rest is sent again. Nothing, if nothing of it was named."""
        found, others = parted(part.changes, places)
        if found:
            part.changes = others
            part.attempts, part.is_tried, part.sibling = 0, False, None
            if not part.changes:
                self.parts.remove(part)
        return found

    def again(self) -> None:
        """After a rest: try again what has tries left; of the rest the first part, and half of another one, each in its turn."""
        self._failed_since, self._was_given = 0, False
        spent = [part for part in self.parts if self._is_spent(part.refusals)]
        for part in self.parts:
            part.is_tried = part in spent[1:]
        if len(spent) > 1:
            self._turn += 1
            self._halve(spent[1 + self._turn % (len(spent) - 1)])

    def add(self, batch: Sequence[Waiting]) -> None:
        """Take these as well, behind all others: those that wait for nothing here, and those that do."""
        self._was_given = True
        free, bound = _parted((change for part in self.parts for change in part.changes), batch)
        self.parts += [Part(some) for some in (free, bound) if some]

    def _join_behind(self, part: Part) -> None:
        """What was refused together with this and not yet sent again goes together once more: this was most likely the reason."""
        start = end = self.parts.index(part) + 1
        size = 0
        while end < len(self.parts) and self.parts[end].is_suspect and size + len(self.parts[end].changes) <= self._most:
            size += len(self.parts[end].changes)
            end += 1
        if end - start > 1:
            changes = sorted(change for one in self.parts[start:end] for change in one.changes)
            joined = self.parts[start].holding(changes)
            joined.is_refused = all(one.is_refused for one in self.parts[start:end])
            self.parts[start:end] = [joined]

    def _halve(self, part: Part) -> None:
        at = self.parts.index(part)
        self.parts[at : at + 1] = part.halves()


def passing(changes: Sequence[Waiting], refused: Collection[Place]) -> tuple[set[Place], list[Place]]:
    """Which refused ones were overtaken, if the destination has all others of these; and by which of them."""
    behind: dict[Row, set[Place]] = {}
    tables: dict[str, set[Place]] = {}
    overtaken: set[Place] = set()
    passed = []
    for change in changes:
        if change.at in refused:
            for row in change.rows:
                behind.setdefault(row, set()).add(change.at)
                tables.setdefault(row[0], set()).add(change.at)
        elif found := set().union(*(_passed(behind, tables, row) for row in change.rows)):
            overtaken |= found
            passed.append(change.at)
    return overtaken, passed


def _passed(behind: Mapping[Row, set[Place]], tables: Mapping[str, set[Place]], row: Row) -> set[Place]:
    """What a change of this row passes; a whole table has all of its rows."""
    table, key = row
    return tables.get(table, set()) if key is None else behind.get(row, set()) | behind.get((table, None), set())


def parted(changes: Sequence[Waiting], places: Collection[Place]) -> _Split:
    """Those at these places, and the others."""
    if len(places) == 1:  # of many changes one is nearly always alone
        [place] = places
        index = bisect_left(changes, place, key=AT)
        if index < len(changes) and changes[index].at == place:
            return [changes[index]], [*changes[:index], *changes[index + 1 :]]
    return [one for one in changes if one.at in places], [one for one in changes if one.at not in places]


def _parted(earlier: Iterable[Waiting], batch: Sequence[Waiting]) -> _Split:
    blocked = {row for change in earlier for row in change.rows}
    found: _Split = [], []
    for change in batch:
        is_bound = _overlap(blocked, [change])
        found[is_bound].append(change)
        if is_bound:
            blocked.update(change.rows)
    return found


def _overlap(blocked: set[Row], changes: Sequence[Waiting]) -> bool:
    """Whether one of these has to wait for a blocked row; a whole table waits for all, and all of that table for it."""
    if not blocked:
        return False
    if any(change.is_whole for change in changes):
        return True
    return any(map(bound_by(blocked), (change.rows for change in changes)))
