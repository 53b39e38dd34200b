"""The search for poison in a batch, by sending parts of it. Pure: no clock, no threads, no requests."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter

from penstock.change import Place
from penstock.delivery.schedule import Waiting
from penstock.rows import Row, bound_by


class Fault(Enum):
    """Whether the changes caused a failure."""

    NONE = "none"  # the destination was not reached, or requested a wait
    POSSIBLE = "possible"  # after the last try
    LIKELY = "likely"  # final, but so many were that the destination may be at fault
    CERTAIN = "certain"


FEW = 3  # the failed requests between two rests that suffice to see that nothing is accepted
AT = attrgetter("at")
_Split = tuple[list[Waiting], list[Waiting]]


@dataclass(eq=False, slots=True)
class Part:
    """Changes that are sent together. `failures` counts all failed tries, `refusals` those that the changes may have caused.

    `sent_at`: the number of accepted requests when this was last sent. `doubted_at`: the same for a single change that was refused
    in its last try. `is_refused`: every answer was a certain refusal.
    """

    changes: Sequence[Waiting]
    attempts: int = 0
    failures: int = 0
    refusals: int = 0
    is_tried: bool = False
    sent_at: int = 0
    doubted_at: int | None = None
    is_refused: bool = True
    sibling: Part | None = None  # the second half, for a first one

    @property
    def is_suspect(self) -> bool:
        """Whether it was refused as a part of something, and not by itself."""
        return self.refusals > 0 and not self.is_tried and self.doubted_at is None

    def is_cleared(self, taken: int) -> bool:
        """Whether the destination accepted something after the doubt, so that the next refusal is the change's own."""
        return self.doubted_at is not None and taken > self.doubted_at

    def holding(self, changes: Sequence[Waiting]) -> Part:
        """A part with other changes and the same history, which was not sent itself."""
        return Part(changes, 0, self.failures, self.refusals, False, self.sent_at, self.doubted_at, self.is_refused)

    def halves(self) -> list[Part]:
        """Two halves, or one part of a single change, with the same history."""
        middle = (len(self.changes) + 1) // 2
        found = (self.changes[:middle], self.changes[middle:])
        made = [self.holding(some) for some in found if some]
        made[0].sibling = made[-1] if len(made) > 1 else None
        return made


class Bisection:
    """The unsettled parts of a batch, in order.

    - A part without tries left is halved, until a change is refused alone. Then it is doubted, but not condemned: the destination
      may be in trouble. It is condemned when the destination accepts something else, and then refuses it once more.
    - While a change is doubted, further parts are halved one at a time, after rests, and few are sent between two rests, first
      those with the fewest failures: an outage costs few requests.
    - Of changes that share a row, a later one is sent after the earlier one is settled.
    - A part that is too large is halved at once, without a failed try or a doubt.
    - `in_order`: a part is sent after all parts before it are settled, whatever their rows.
    - `is_aside`: other senders send the changes that wait, so that it needs no further ones.
    - `taken` is the number of requests that the destination has accepted, on all connections.
    """

    def __init__(self, batch: Sequence[Waiting], is_spent: Callable[[int], bool], *, in_order: bool = False) -> None:
        self.parts, self._in_order = [Part(batch)], in_order
        self._is_spent, self._turn, self._most = is_spent, 0, len(batch)
        self._failed_since, self._was_given = 0, False  # the last rest, in doubt
        self.is_aside = False

    @property
    def is_in_doubt(self) -> bool:
        """Whether an acceptance of something else would end a doubt."""
        return any(part.doubted_at is not None for part in self.parts)

    def next(self, taken: int) -> Part | None:
        """The part to send now; None if all wait for a rest."""
        ready = self._ready(taken)
        if not self.is_in_doubt:
            return next(ready, None)
        return min(ready, key=lambda part: (not part.is_cleared(taken), part.attempts > 0, part.failures), default=None)

    def _ready(self, taken: int) -> Iterator[Part]:
        blocked: set[Row] = set()
        is_enough = self.is_in_doubt and self._failed_since >= FEW
        for part in self.parts[:1] if self._in_order else self.parts:
            is_due = part.is_cleared(taken) or not (part.is_tried or is_enough)
            if is_due and not _overlap(blocked, part.changes):
                yield part
            blocked.update(row for change in part.changes for row in change.rows)

    def wants_more(self, taken: int) -> bool:
        """Whether a waiting batch is needed as a witness: one after each rest, if every part has failed by itself."""
        is_lacking = self.is_in_doubt and not self._was_given and not self.is_aside
        return is_lacking and all(part.attempts for part in self._ready(taken))

    def taken(self, part: Part) -> None:
        """The part was accepted. Then its other half caused their common refusal, and is halved without being sent."""
        self.parts.remove(part)
        self._failed_since = 0
        if (other := part.sibling) and other in self.parts and not other.is_tried and len(other.changes) > 1:
            self._halve(other)

    def split(self, part: Part) -> None:
        """The part was too large. An acceptance of one half does not accuse the other."""
        at, halves = self.parts.index(part), part.halves()
        halves[0].sibling = None
        self.parts[at : at + 1] = halves

    def failed(self, part: Part, fault: Fault) -> Waiting | None:
        """Record a failure; return the change that is condemned now, if any. Acceptances after its sending do not count yet."""
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
        """The changes that are condemned because the destination named them; the others are sent again. Empty without any here."""
        found, others = parted(part.changes, places)
        if found:
            part.changes = others
            part.attempts, part.is_tried, part.sibling = 0, False, None
            if not part.changes:
                self.parts.remove(part)
        return found

    def again(self) -> None:
        """After a rest: retry the parts with tries left; of the others the first one, and halve another one, each in its turn."""
        self._failed_since, self._was_given = 0, False
        spent = [part for part in self.parts if self._is_spent(part.refusals)]
        for part in self.parts:
            part.is_tried = part in spent[1:]
        if len(spent) > 1:
            self._turn += 1
            self._halve(spent[1 + self._turn % (len(spent) - 1)])

    def add(self, batch: Sequence[Waiting]) -> None:
        """Add a batch after all parts: the changes that wait for no part here, and those that do."""
        self._was_given = True
        free, bound = _parted((change for part in self.parts for change in part.changes), batch)
        self.parts += [Part(some) for some in (free, bound) if some]

    def _join_behind(self, part: Part) -> None:
        """Join the suspects after this part: it most likely caused their common refusal."""
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
    """The refused changes that were overtaken, if the destination has all others of these, and the changes that overtook them."""
    refused_of: dict[Row, set[Place]] = {}
    tables: dict[str, set[Place]] = {}
    overtaken: set[Place] = set()
    passed = []
    for change in changes:
        if change.at in refused:
            for row in change.rows:
                refused_of.setdefault(row, set()).add(change.at)
                tables.setdefault(row[0], set()).add(change.at)
        elif found := set().union(*(_passed(refused_of, tables, row) for row in change.rows)):
            overtaken |= found
            passed.append(change.at)
    return overtaken, passed


def _passed(refused_of: Mapping[Row, set[Place]], tables: Mapping[str, set[Place]], row: Row) -> set[Place]:
    """The refused changes that a change of this row overtakes; a whole table has all of its rows."""
    table, key = row
    return tables.get(table, set()) if key is None else refused_of.get(row, set()) | refused_of.get((table, None), set())


def parted(changes: Sequence[Waiting], places: Collection[Place]) -> _Split:
    """The changes at these places, and the others."""
    if len(places) == 1:  # the usual case
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
    """Whether one of these must wait for a blocked row; a whole table waits for all rows."""
    if not blocked:
        return False
    if any(change.is_whole for change in changes):
        return True
    return any(map(bound_by(blocked), (change.rows for change in changes)))
