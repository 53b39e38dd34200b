"""The dead letters of one pipeline in memory, as the records of the state topic produce them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson

from penstock.change import Lane
from penstock.coordinators.letters import change_of, fields_of
from penstock.letter import DeadLetter
from penstock.poison.parked_keys import Hold
from penstock.rows import Row

_LISTED = ["position", "op", "table", "key", "before", "after", "at", "old_row_id", "new_row_id", "error", "transaction", "ordinal"]


class Numbers:
    """The numbers of the letters of a store. `last`: the number of the newest one."""

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def next(self) -> int:
        """A number that no other letter has."""
        self.last += 1
        return self.last


class Letters:
    """`Storage` in memory; the letters that touch a row are indexed."""

    def __init__(self, numbers: Numbers | None = None, letters: Iterable[DeadLetter] = (), **counts: int) -> None:
        self._numbers = numbers or Numbers()
        self.counts = {"dropped": 0, "passed": 0, "redriven": 0, **counts}
        self._letters: dict[Any, DeadLetter] = {}  # by number
        self._names: set[str] = set()
        self._rows: defaultdict[str, defaultdict[str | None, set[Any]]] = defaultdict(lambda: defaultdict(set))
        for letter in letters:
            self._enter(letter)

    def __contains__(self, number: int | None) -> bool:
        return number in self._letters

    def add(self, letter: DeadLetter) -> None:
        """Keep a letter under the next number, unless there is one of the same change."""
        if letter.name not in self._names:
            self._enter(replace(letter, number=self._numbers.next()))

    def is_held(self, letter: DeadLetter) -> bool:
        """Whether there is a letter of the same change, or an earlier one of its rows holds."""
        return letter.name in self._names or any(one.holds for one in self._earlier(letter))

    def overtake(self, letter: DeadLetter) -> None:
        """Mark the earlier letters of its rows that are not overtaken yet."""
        for one in self._earlier(letter):
            if not one.is_overtaken:
                self._enter(replace(one, is_overtaken=True, overtaken_by=letter.name))

    def give_back(self, letter: DeadLetter) -> None:
        """Remove the marks of this letter from the earlier letters of its rows."""
        for one in self._earlier(letter):
            if one.overtaken_by == letter.name:
                self._enter(replace(one, is_overtaken=False, overtaken_by=None))

    def hold(self, number: int | None, *, force: bool) -> bool:
        """Mark a letter as one for which later changes wait."""
        if not (found := self._letters.get(number)) or (found.is_overtaken and not force):
            return False
        self._enter(replace(found, holds=True))
        return True

    def delete(self, number: int | None) -> bool:
        """Delete a letter; False if there is none."""
        if not (letter := self._letters.pop(number, None)):
            return False
        self._names.remove(letter.name)
        for table, key in letter.rows:
            self._rows[table][key].discard(number)
        return True

    def count(self, *, dropped: int = 0, passed: int = 0, redriven: int = 0) -> None:
        """Add to the totals."""
        for name, more in (("dropped", dropped), ("passed", passed), ("redriven", redriven)):
            self.counts[name] += more

    def holds(self, rows: Collection[Row] | None) -> list[Hold]:
        """All letters, or those that share one of these rows."""
        return [letter.hold for letter in (self.all() if rows is None else self._touching(rows))]

    def all(self) -> list[DeadLetter]:
        """All letters with their numbers."""
        return list(self._letters.values())

    def summary(self) -> dict[str, Any]:
        """The numbers of letters, as fields of a pipeline's state."""
        return {"dead": len(self._letters), "waiting": sum(one.is_behind for one in self._letters.values()), **self.counts}

    def _enter(self, letter: DeadLetter) -> None:
        self._letters[letter.number] = letter
        self._names.add(letter.name)
        for table, key in letter.rows:
            self._rows[table][key].add(letter.number)

    def _earlier(self, letter: DeadLetter) -> list[DeadLetter]:
        mine = letter.hold
        return [one for one in self._touching(letter.rows) if one.hold.is_before(mine)]

    def _touching(self, rows: Collection[Row]) -> list[DeadLetter]:
        found = set[Any]()
        for table, key in rows:
            held: Mapping[str | None, set[Any]] = self._rows.get(table, {})
            found.update(*(held.values() if key is None else (held.get(key, ()), held.get(None, ()))))
        return [self._letters[number] for number in sorted(found)]


def written(letter: DeadLetter) -> dict[str, Any]:
    """A letter as JSON."""
    fields = {name: getattr(letter, name) for name in DeadLetter.__slots__ if name not in ("change", "parked_at")}
    return {**fields, "change": fields_of(letter.change), "parked_at": letter.parked_at.isoformat()}


def read(facts: Mapping[str, Any]) -> DeadLetter:
    """The letter of this JSON, also of an earlier version."""
    fields = facts["change"] if isinstance(facts["change"], dict) else _of_list(facts["change"])
    parked_at = datetime.fromisoformat(facts["parked_at"])
    return DeadLetter(**{**facts, "change": change_of(fields), "parked_at": parked_at, "lane": Lane(facts["lane"])})


def _of_list(listed: Sequence[Any]) -> dict[str, Any]:
    """The fields of a change from an earlier version, which wrote them as a list."""
    fields = dict(zip(_LISTED, listed, strict=True))
    ids = {name: fields.pop(name) for name in ("old_row_id", "new_row_id")}
    known = {name: ids[name] for name in sorted(ids) if ids[name] is not None}
    return {**fields, "facts": orjson.dumps(known).decode() if known else None}
