"""Dead letters in tables: the storage that the kinds of state with SQL share. A kind adds the words that its SQL has of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol, Self

import orjson

from penstock.change import CHANGES, Change, Lane, described
from penstock.coordinators.letters import change_of, fields_of
from penstock.errors import LetterTooLarge
from penstock.letter import DeadLetter
from penstock.poison.parked_keys import Hold
from penstock.rows import Row

_NAMES = {"table": "table_name", "transaction": "transaction_id", "schema": "schema_version"}
_CHANGE = [_NAMES.get(name, name) for name in CHANGES.names]
_ABOUT = ("pipeline", "incarnation", "lane", "stage", "code", "message", "tries", "epoch", "behind", "holds")
_PASSED = ("overtaken", "overtaken_by")

COLUMNS = (*_ABOUT, *_PASSED, "parked_at", *_CHANGE)
"""The columns of a letter; the store adds its `number`."""

_THIS = "pipeline = :pipeline and incarnation = :incarnation and lane = :lane and position = :position and ordinal = :ordinal"
_TABLES, _SUMS = ("dead_letters", "dead_rows", "dead_counts"), ("dropped", "passed", "redriven")


class Tables(Protocol):
    """A connection that is in a transaction."""

    def rows(self, sql: str, /, **values: object) -> Sequence[tuple[Any, ...]]:
        """The answer to a query."""

    def write(self, sql: str, /, **values: object) -> bool:
        """Execute one statement; False if it changed no row."""


@dataclass(frozen=True, slots=True)
class Words:
    """The parts of statements that each kind spells in its own way.

    `given`: the rows of a statement as a table `w(table_name, row_key)`. `pairs`: the rows of a letter as JSON. `joined`: a join
    that keeps the order of its tables. `parameters`: a statement with its `:name` as the driver spells them.
    """

    given: str
    pairs: str
    schema: str = ""
    joined: str = "join"
    parameters: Callable[[str], str] = str

    def statements(self) -> dict[str, str]:
        """All statements by name."""
        letters, counts = f"{self.schema}dead_letters", f"{self.schema}dead_counts"
        sums = ", ".join(f"(select coalesce(max({name}), 0) from {counts} where pipeline = :pipeline)" for name in _SUMS)
        more = ", ".join(f"{name} = c.{name} + excluded.{name}" for name in _SUMS)
        holds = f"""
        select incarnation, lane, position, ordinal, (select {self.pairs} from {self.schema}dead_rows where letter = number),
        holds, overtaken from {letters} where"""
        made = {
            "pipeline": f"select pipeline from {letters} where number = :number",
            "has": f"select 1 from {letters} where {_THIS}",
            "add": f"insert into {letters} ({', '.join(COLUMNS)}) values ({', '.join(f':{name}' for name in COLUMNS)}) "
            "on conflict do nothing returning number",
            # Without `where`, SQLite reads `on` as that of a join.
            "note": f"insert into {self.schema}dead_rows (pipeline, table_name, row_key, letter) select :pipeline, w.table_name, "
            f"coalesce(w.row_key, ''), :number from {self.given} where true on conflict do nothing",
            "is_held": f"select 1 {self._earlier} and l.holds limit 1",
            "overtake": f"update {letters} set overtaken = true, overtaken_by = :name "
            f"where not overtaken and number in (select l.number {self._earlier})",
            "give_back": f"update {letters} set overtaken = false, overtaken_by = null "
            f"where overtaken_by = :name and number in (select l.number {self._earlier})",
            "hold": f"update {letters} set holds = true where number = :number and (:force or not overtaken)",
            "delete": f"delete from {letters} where number = :number",
            "delete_rows": f"delete from {self.schema}dead_rows where letter = :number",
            **{f"clear_{name}": f"delete from {self.schema}{name} where pipeline = :pipeline" for name in _TABLES},
            "holds": f"{holds} pipeline = :pipeline",
            "holds_of": f"{holds} number in ({self._touching})",
            "all": f"select {', '.join(COLUMNS)}, number from {letters} where pipeline = :pipeline",
            "count": f"insert into {counts} as c (pipeline, dropped, passed, redriven) values (:pipeline, :dropped, :passed, "
            f":redriven) on conflict (pipeline) do update set {more}",
            "summary": f"select count(*), count(*) filter (where behind), {sums} from {letters} where pipeline = :pipeline",
        }
        return {name: self.parameters(sql) for name, sql in made.items()}

    @property
    def _touching(self) -> str:
        """The letters that share one of the given rows. In two parts: with `or` no index would be used."""
        rows = f"{self.schema}dead_rows r on r.pipeline = :pipeline and r.table_name = w.table_name"
        of_table = f"select r.letter from {self.given} {self.joined} {rows}"
        return f"{of_table} and r.row_key in (w.row_key, '') union all {of_table} and r.row_key <> '' where w.row_key is null"

    @property
    def _earlier(self) -> str:
        """Those of them that come before the letter, as `Hold.is_before` has it."""
        return f"""
        from ({self._touching}) t {self.joined} {self.schema}dead_letters l on l.number = t.letter
        where (l.incarnation <> :incarnation or l.lane <> :lane
        or (l.position <= :position and (l.position, l.ordinal) <> (:position, :ordinal)))"""


class LetterTable(ABC):
    """`Storage` in `dead_letters`, `dead_rows` (the rows of each letter, indexed) and `dead_counts`."""

    sql: ClassVar[Mapping[str, str]]
    """The statements of a kind."""
    refusals: ClassVar[tuple[type[Exception], ...]]
    """Errors of its driver about a letter that is too large."""

    def __init__(self, store: Tables, pipeline: str) -> None:
        self._store, self._pipeline = store, pipeline

    @classmethod
    def of(cls, store: Tables, number: int | None) -> Self | None:
        """The storage that has the letter of this number."""
        found = store.rows(cls.sql["pipeline"], number=number)
        return cls(store, found[0][0]) if found else None

    @abstractmethod
    def _listed(self, rows: Collection[Row]) -> Mapping[str, object]:
        """The parameters of `given`."""

    def _stored(self, row: dict[str, object]) -> dict[str, object]:
        """The columns of a letter as this kind keeps them."""
        return row

    def _said(self, error: Exception) -> object:
        return error

    def has(self, letter: DeadLetter) -> bool:
        """Whether there is a letter of the same change."""
        return bool(self._rows("has", **_place(letter)))

    def add(self, letter: DeadLetter) -> None:
        """Keep a letter under the next number, unless there is one of the same change."""
        with self._sized(letter):
            for (number,) in self._rows("add", **self._stored(_row_of(letter))):
                self._write("note", number=number, **self._listed(letter.rows))

    def is_held(self, letter: DeadLetter) -> bool:
        """Whether an earlier letter of its rows holds."""
        with self._sized(letter):
            return bool(self._rows("is_held", **_place(letter), **self._listed(letter.rows)))

    def overtake(self, letter: DeadLetter) -> None:
        """Mark the earlier letters of its rows that are not overtaken yet."""
        self._write("overtake", name=letter.name, **_place(letter), **self._listed(letter.rows))

    def give_back(self, letter: DeadLetter) -> None:
        """Remove the marks of this letter from the earlier letters of its rows."""
        self._write("give_back", name=letter.name, **_place(letter), **self._listed(letter.rows))

    def hold(self, number: int | None, *, force: bool) -> bool:
        """Mark a letter as one for which later changes wait."""
        return self._write("hold", number=number, force=force)

    def delete(self, number: int | None) -> bool:
        """Delete a letter; False if there is none."""
        self._write("delete_rows", number=number)
        return self._write("delete", number=number)

    def clear(self) -> None:
        """Delete all letters and totals."""
        for name in _TABLES:
            self._write(f"clear_{name}")

    def holds(self, rows: Collection[Row] | None) -> list[Hold]:
        """All letters, or those that share one of these rows."""
        found = self._rows("holds") if rows is None else self._rows("holds_of", **self._listed(rows))
        return [_hold(*row) for row in found]

    def all(self) -> list[DeadLetter]:
        """All letters with their numbers."""
        return [_letter_of(dict(zip((*COLUMNS, "number"), row, strict=True))) for row in self._rows("all")]

    def count(self, *, dropped: int = 0, passed: int = 0, redriven: int = 0) -> None:
        """Add to the totals."""
        self._write("count", dropped=dropped, passed=passed, redriven=redriven)

    def summary(self) -> dict[str, Any]:
        """How many letters there are and were, as the fields of a pipeline's state."""
        return dict(zip(("dead", "waiting", *_SUMS), self._rows("summary")[0], strict=True))

    def _rows(self, name: str, /, **values: object) -> Sequence[tuple[Any, ...]]:
        return self._store.rows(self.sql[name], pipeline=self._pipeline, **values)

    def _write(self, name: str, /, **values: object) -> bool:
        return self._store.write(self.sql[name], pipeline=self._pipeline, **values)

    @contextmanager
    def _sized(self, letter: DeadLetter) -> Iterator[None]:
        try:
            yield
        except self.refusals as error:
            raise _too_large(letter.change, self._said(error)) from None


def _row_of(letter: DeadLetter) -> dict[str, object]:
    """The columns of a letter; no ordinal is 0, so that it can be part of a key: ordinals begin at 1."""
    why = (letter.stage, letter.code, letter.message, letter.tries, letter.epoch)
    passed = (letter.is_overtaken, letter.overtaken_by)
    about = (letter.incarnation, letter.lane, *why, letter.is_behind, letter.holds, *passed, letter.parked_at)
    stored = fields_of(letter.change)
    fields = [(stored[name] or 0) if name == "ordinal" else stored[name] for name in CHANGES.names]
    return dict(zip(COLUMNS[1:], (*about, *fields), strict=True))


def _letter_of(row: Mapping[str, Any]) -> DeadLetter:
    """The letter of these columns and its `number`."""
    fields = dict(zip(CHANGES.names, (row[name] for name in _CHANGE), strict=True))
    parked_at = row["parked_at"]
    return DeadLetter(
        incarnation=row["incarnation"],
        lane=Lane(row["lane"]),
        change=change_of({**fields, "ordinal": fields["ordinal"] or None}),
        stage=row["stage"],
        code=row["code"],
        message=row["message"],
        tries=row["tries"],
        epoch=row["epoch"],
        is_behind=bool(row["behind"]),
        holds=bool(row["holds"]),
        is_overtaken=bool(row["overtaken"]),
        overtaken_by=row["overtaken_by"],
        parked_at=parked_at if isinstance(parked_at, datetime) else datetime.fromisoformat(parked_at),
        number=row["number"],
    )


def _hold(incarnation: str, lane: str, position: int, ordinal: int, rows: str | None, *flags: int) -> Hold:
    held = tuple((table, key) for table, key in orjson.loads(rows or "[]"))
    return Hold(incarnation, Lane(lane), (position, ordinal), held, *map(bool, flags))


def _place(letter: DeadLetter) -> dict[str, object]:
    position, ordinal = letter.change.place
    return {"incarnation": letter.incarnation, "lane": letter.lane, "position": position, "ordinal": ordinal}


def _too_large(change: Change, said: object) -> LetterTooLarge:
    """The error about a change that a store has refused with these words."""
    size = sum(len(text) for text in (change.key, change.before, change.after) if text)
    return LetterTooLarge(f"{described(change)}, has {size} characters, and cannot be parked: {said}")
