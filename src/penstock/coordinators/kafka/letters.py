"""The dead letters of one pipeline, as the records of the state topic add up to them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from penstock.change import Change, Lane, Op, values
from penstock.holding import Hold
from penstock.letter import DeadLetter
from penstock.rows import Row

Key = tuple[str, str, int, int]
"""Incarnation, lane, position and ordinal: what tells letters apart."""


class Letters:
    """Each has a number; which of them touch a row is indexed."""

    def __init__(self, letters: Iterable[DeadLetter] = ()) -> None:
        self._letters: dict[int, DeadLetter] = {}
        self._keys: dict[Key, int] = {}
        self._rows: defaultdict[str, defaultdict[str | None, set[int]]] = defaultdict(lambda: defaultdict(set))
        for letter in letters:
            self.add(letter)

    def __len__(self) -> int:
        return len(self._letters)

    def __iter__(self) -> Any:
        return iter(self._letters.values())

    def __contains__(self, letter: DeadLetter) -> bool:
        return _key(letter) in self._keys

    def get(self, number: int) -> DeadLetter | None:
        """The letter of this number."""
        return self._letters.get(number)

    def add(self, letter: DeadLetter) -> None:
        """Keep a letter that has its number."""
        assert letter.number is not None
        self._letters[letter.number] = letter
        self._keys[_key(letter)] = letter.number
        for table, key in letter.rows:
            self._rows[table][key].add(letter.number)

    def remove(self, number: int) -> None:
        """Forget a letter."""
        letter = self._letters.pop(number)
        del self._keys[_key(letter)]
        for table, key in letter.rows:
            self._rows[table][key].discard(number)

    def alter(self, number: int, **altered: Any) -> None:
        """Note something about a letter."""
        self._letters[number] = replace(self._letters[number], **altered)

    def overtake(self, earlier: Iterable[DeadLetter], letter: DeadLetter) -> None:
        """This change is sent past those; who was first is remembered."""
        for one in earlier:
            if not one.is_overtaken and one.number is not None:
                self.alter(one.number, is_overtaken=True, overtaken_by=letter.name)

    def give_back(self, letter: DeadLetter) -> None:
        """What this one was sent past, as the first, it has not overtaken."""
        for one in self.earlier(letter):
            if one.overtaken_by == letter.name and one.number is not None:
                self.alter(one.number, is_overtaken=False, overtaken_by=None)

    def earlier(self, letter: DeadLetter) -> list[DeadLetter]:
        """Those that share a row with this one and come before it."""
        mine = letter.hold
        return [one for one in self.touching(letter.rows) if one.hold.is_before(mine)]

    def touching(self, rows: Collection[Row]) -> list[DeadLetter]:
        """Those that share one of these rows."""
        found: set[int] = set()
        for table, key in rows:
            held: Mapping[str | None, set[int]] = self._rows.get(table, {})
            found.update(*(held.values() if key is None else (held.get(key, ()), held.get(None, ()))))
        return [self._letters[number] for number in sorted(found)]

    def in_order(self) -> list[DeadLetter]:
        """All, those of one key in the order in which they must be sent: lanes as they came, and in each its own order."""
        first: dict[tuple[str, str], int] = {}
        for number, letter in sorted(self._letters.items()):
            first.setdefault((letter.incarnation, letter.lane), number)
        return sorted(self._letters.values(), key=lambda one: (first[one.incarnation, one.lane], one.change.place))

    def holds(self, rows: Collection[Row] | None) -> list[Hold]:
        """The letters as others see them; all, or those that share one of these rows."""
        return [letter.hold for letter in (self._letters.values() if rows is None else self.touching(rows))]


def written(letter: DeadLetter) -> dict[str, Any]:
    """A letter as JSON has it."""
    fields = {name: getattr(letter, name) for name in DeadLetter.__slots__ if name not in ("change", "parked_at")}
    return {**fields, "change": list(values(letter.change)), "parked_at": letter.parked_at.isoformat()}


def read(facts: Mapping[str, Any]) -> DeadLetter:
    """The letter that was written so."""
    position, op, *rest = facts["change"]
    made = {**facts, "change": Change(position, Op(op), *rest), "parked_at": datetime.fromisoformat(facts["parked_at"])}
    return DeadLetter(**{**made, "lane": Lane(facts["lane"])})


def read_all(many: Sequence[Mapping[str, Any]]) -> list[DeadLetter]:
    """The letters that were written so."""
    return [read(facts) for facts in many]


def _key(letter: DeadLetter) -> Key:
    return (letter.incarnation, letter.lane, *letter.change.place)
