"""Dead letters: changes that are parked, and their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from penstock.change import Change, Lane, Op
from penstock.poison.parked_keys import Hold
from penstock.rows import Row, rows_of_change

Stage = Literal["sql", "function", "sink"]
"""What a parked change could not pass: `where` and `select`, the function, or the far side. Earlier stages have let it pass."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A parked change, as it was before the stage that it could not pass, and why.

    `is_behind`: nothing is wrong with it, it waits for an earlier letter of its key. `holds`: later changes of its key wait for it.
    `is_overtaken`: a later one went on, by name `overtaken_by` if it was sent when this was parked. The store gives the `number`.
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
        """What tells it apart from every other change of its pipeline."""
        position, ordinal = self.change.place
        return f"{self.incarnation} {self.lane} {position}.{ordinal}"

    @property
    def rows(self) -> Sequence[Row]:
        """The rows it is about; none for a schema change, which has no key: nothing waits for it, and it waits for nothing."""
        return waiting_rows(self.change)

    @property
    def hold(self) -> Hold:
        """What others need to know of it."""
        return Hold(self.incarnation, self.lane, self.change.place, tuple(self.rows), self.holds, self.is_overtaken)


def waiting_rows(change: Change) -> Sequence[Row]:
    """The rows whose letters a change has to wait for."""
    return () if change.op == Op.SCHEMA else rows_of_change(change)


def ordered(letters: Sequence[DeadLetter]) -> list[DeadLetter]:
    """Letters in the order in which they must be sent.

    Of those that are bound to each other by rows, lanes and lives come in the order of their first letters: what another lane has
    of the same rows was parked behind them. Otherwise they stay as they are.
    """
    bonds = _bonds(letters)
    first: dict[object, int] = {}
    for letter in letters:
        lane = bonds[letter.name], letter.incarnation, letter.lane
        first[lane] = min(first.get(lane, letter.number or 0), letter.number or 0)

    def turn(letter: DeadLetter) -> tuple[object, ...]:
        return first[bonds[letter.name], letter.incarnation, letter.lane], letter.change.place

    bound: dict[str, list[DeadLetter]] = {}
    for letter in letters:
        bound.setdefault(bonds[letter.name], []).append(letter)
    queues = {bond: iter(sorted(some, key=turn)) for bond, some in bound.items()}
    return [next(queues[bonds[letter.name]]) for letter in letters]


def in_order(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """Letters of a store: lanes in the order of their first letters, and each lane in its own order."""
    numbered, first = sorted(letters, key=lambda one: one.number or 0), dict[tuple[str, str], int]()
    for letter in numbered:
        first.setdefault((letter.incarnation, letter.lane), len(first))
    return sorted(numbered, key=lambda one: (first[one.incarnation, one.lane], one.change.place))


def _bonds(letters: Sequence[DeadLetter]) -> dict[str, str]:
    """For each letter, by name, one of those that are bound to it, the same for all of them."""
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
