"""Dead letters: changes that are parked, and their order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from penstock.change import Change, Lane, Op
from penstock.poison.parked_keys import Hold
from penstock.rows import Row, rows_of_change

Stage = Literal["sql", "function", "sink"]
"""The stage at which a change was parked, after it passed the earlier ones: `where` and `select`, the function, or the sink."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A parked change, as it was before its stage, and the error.

    `is_behind`: it is not poison, but waits for an earlier letter of its key. `holds`: later changes of its key wait for it.
    `is_overtaken`: a later change was delivered; `overtaken_by` names it if it was sent while this one was being parked. The
    store assigns the `number`.
    """

    incarnation: str
    lane: Lane
    change: Change
    stage: Stage
    code: str = ""
    message: str = ""
    tries: int = 0
    epoch: int = 0
    is_behind: bool = False
    holds: bool = True
    is_overtaken: bool = False
    overtaken_by: str | None = None
    parked_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    number: int | None = None

    @property
    def name(self) -> str:
        """A name that is unique in its pipeline."""
        position, ordinal = self.change.place
        return f"{self.incarnation} {self.lane} {position}.{ordinal}"

    @property
    def rows(self) -> Sequence[Row]:
        """The rows of the change; none for a schema event, which has no key: no change waits for it, and it waits for none."""
        return waiting_rows(self.change)

    @property
    def hold(self) -> Hold:
        """The facts of this letter that decide about later changes."""
        return Hold(self.incarnation, self.lane, self.change.place, tuple(self.rows), self.holds, self.is_overtaken)


def waiting_rows(change: Change) -> Sequence[Row]:
    """The rows for whose letters a change waits."""
    return () if change.op == Op.SCHEMA else rows_of_change(change)


def ordered(letters: Sequence[DeadLetter]) -> list[DeadLetter]:
    """Letters in the order of sending.

    Among letters that share rows, lanes and incarnations follow the order of their first letters, since the letters of another
    lane were parked after them. Other letters keep their places.
    """
    bonds = _bonds(letters)
    first: dict[object, int] = {}
    bound: defaultdict[str, list[DeadLetter]] = defaultdict(list)
    for letter in letters:
        bound[bonds[letter.name]].append(letter)
        lane = bonds[letter.name], letter.incarnation, letter.lane
        first[lane] = min(first.get(lane, letter.number or 0), letter.number or 0)

    def turn(letter: DeadLetter) -> tuple[object, ...]:
        return first[bonds[letter.name], letter.incarnation, letter.lane], letter.change.place

    queues = {bond: iter(sorted(some, key=turn)) for bond, some in bound.items()}
    return [next(queues[bonds[letter.name]]) for letter in letters]


def in_order(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """Letters of a store: lanes in the order of their first letters, each in the order of its changes."""
    numbered, first = sorted(letters, key=lambda one: one.number or 0), dict[tuple[str, str], int]()
    for letter in numbered:
        first.setdefault((letter.incarnation, letter.lane), len(first))
    return sorted(numbered, key=lambda one: (first[one.incarnation, one.lane], one.change.place))


def _bonds(letters: Sequence[DeadLetter]) -> dict[str, str]:
    """For the name of each letter, a representative of the group of letters that share rows with it."""
    wholes = {table for letter in letters for table, key in letter.rows if key is None}
    root: dict[object, object] = {}

    def found(one: object) -> object:
        while (above := root.setdefault(one, one)) != one:
            root[one] = one = root[above]
        return one

    for letter in letters:
        for table, key in letter.rows:
            root[found((table, None if table in wholes else key))] = found(letter.name)
    return {letter.name: str(found(letter.name)) for letter in letters}
