"""Dead letters in tables: the storage that the kinds of state with SQL share. A kind adds the parts that only its SQL has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, ClassVar, Self

import orjson

from penstock.change import CHANGES, Lane, described
from penstock.coordinators.letters import change_of, fields_of
from penstock.coordinators.tables import Tables
from penstock.errors import LetterTooLarge
from penstock.letter import DeadLetter
from penstock.poison.parked_keys import Hold
from penstock.rows import Row

_NAMES = {
    "table": "table_name",
    "transaction": "transaction_id",
    "schema": "schema_version",
    "is_behind": "behind",
    "is_overtaken": "overtaken",
}
_LETTER = [name for name in DeadLetter.__slots__ if name not in ("change", "number")]

COLUMNS = ("pipeline", *(_NAMES.get(name, name) for name in (*_LETTER, *CHANGES.names)))
"""The columns of a letter; the store adds its `number`."""

_THIS = "pipeline = :pipeline and incarnation = :incarnation and lane = :lane and position = :position and ordinal = :ordinal"
_TABLES, _SUMS = ("dead_letters", "dead_rows", "dead_counts"), ("dropped", "passed", "redriven")


def statements(given: str, pairs: str, schema: str = "", joined: str = "join") -> dict[str, str]:
    """All statements by name, from the parts that each kind writes differently.

    `given`: the rows of a statement as a table `w(table_name, row_key)`. `pairs`: the rows of a letter as JSON. `joined`: a join
    that keeps the order of its tables.
    """
    letters, dead_rows, counts = f"{schema}dead_letters", f"{schema}dead_rows", f"{schema}dead_counts"
    sums = ", ".join(f"(select coalesce(max({name}), 0) from {counts} where pipeline = :pipeline)" for name in _SUMS)
    more = ", ".join(f"{name} = c.{name} + excluded.{name}" for name in _SUMS)
    # The letters that share one of the given rows. In two parts: with `or` no index would be used.
    of_table = f"select r.letter from {given} {joined} {dead_rows} r on r.pipeline = :pipeline and r.table_name = w.table_name"
    touching = f"{of_table} and r.row_key in (w.row_key, '') union all {of_table} and r.row_key <> '' where w.row_key is null"
    # Those of them that come before the letter, by the rule of `Hold.is_before`.
    earlier = f"""
    from ({touching}) t {joined} {letters} l on l.number = t.letter
    where (l.incarnation <> :incarnation or l.lane <> :lane
    or (l.position <= :position and (l.position, l.ordinal) <> (:position, :ordinal)))"""
    holds = f"""
    select incarnation, lane, position, ordinal, (select {pairs} from {dead_rows} where letter = number), holds, overtaken
    from {letters} where"""
    return {
        "pipeline": f"select pipeline from {letters} where number = :number",
        "add": f"insert into {letters} ({', '.join(COLUMNS)}) values ({', '.join(f':{name}' for name in COLUMNS)}) "
        "on conflict do nothing returning number",
        # Without `where`, SQLite reads `on` as that of a join.
        "note": f"insert into {dead_rows} (pipeline, table_name, row_key, letter) select :pipeline, w.table_name, "
        f"coalesce(w.row_key, ''), :number from {given} where true on conflict do nothing",
        "is_held": f"select 1 from {letters} where {_THIS} union all select 1 {earlier} and l.holds limit 1",
        "overtake": f"update {letters} set overtaken = true, overtaken_by = :name "
        f"where not overtaken and number in (select l.number {earlier})",
        "give_back": f"update {letters} set overtaken = false, overtaken_by = null "
        f"where overtaken_by = :name and number in (select l.number {earlier})",
        "hold": f"update {letters} set holds = true where number = :number and (:force or not overtaken)",
        "delete": f"delete from {letters} where number = :number",
        "delete_rows": f"delete from {dead_rows} where letter = :number",
        **{f"clear_{name}": f"delete from {schema}{name} where pipeline = :pipeline" for name in _TABLES},
        "holds": f"{holds} pipeline = :pipeline",
        "holds_of": f"{holds} number in ({touching})",
        "all": f"select {', '.join(COLUMNS)}, number from {letters} where pipeline = :pipeline",
        "count": f"insert into {counts} as c (pipeline, dropped, passed, redriven) values (:pipeline, :dropped, :passed, "
        f":redriven) on conflict (pipeline) do update set {more}",
        "summary": f"select count(*), count(*) filter (where behind), {sums} from {letters} where pipeline = :pipeline",
    }


class LetterTable(ABC):
    """`Storage` in `dead_letters`, `dead_rows` (the rows of each letter, indexed) and `dead_counts`."""

    sql: ClassVar[Mapping[str, str]]
    """The statements of a kind."""
    refusals: ClassVar[tuple[type[Exception], ...]]
    """Errors of its driver about a letter that is too large."""

    def __init__(self, store: Tables, pipeline: str) -> None:
        self._store, self._pipeline = store, pipeline

    def queued(self) -> Self:
        """The storage, once no other transaction changes letters of its pipeline: always, where transactions exclude each other."""
        return self

    @abstractmethod
    def _listed(self, rows: Collection[Row]) -> Mapping[str, object]:
        """The parameters of `given`."""

    def _stored(self, row: dict[str, object]) -> dict[str, object]:
        """The columns of a letter as this kind keeps them."""
        return row

    def _said(self, error: Exception) -> object:
        return error

    def add(self, letter: DeadLetter) -> None:
        """Keep a letter under the next number, unless there is one of the same change."""
        with self._sized(letter):
            for (number,) in self._rows("add", **self._stored(_row_of(letter))):
                self._write("note", number=number, **self._listed(letter.rows))

    def is_held(self, letter: DeadLetter) -> bool:
        """Whether there is a letter of the same change, or an earlier one of its rows holds."""
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
        """The numbers of letters, as fields of a pipeline's state."""
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
            change = letter.change
            size = sum(len(text) for text in (change.key, change.before, change.after) if text)
            fact = f"{described(change)}, has {size} characters, and cannot be parked: {self._said(error)}"
            raise LetterTooLarge(fact) from None


def _row_of(letter: DeadLetter) -> dict[str, object]:
    """The columns of a letter. Ordinal 0 means none, because null cannot be part of a key; ordinals begin at 1."""
    change = fields_of(letter.change)
    fields: dict[str, object] = {name: getattr(letter, name) for name in _LETTER} | change | {"ordinal": change["ordinal"] or 0}
    return {_NAMES.get(name, name): value for name, value in fields.items()}


def _letter_of(row: Mapping[str, Any]) -> DeadLetter:
    """The letter of these columns and its `number`."""
    fields = {name: row[_NAMES.get(name, name)] for name in (*_LETTER, *CHANGES.names)}
    change = change_of({name: fields.pop(name) for name in CHANGES.names} | {"ordinal": row["ordinal"] or None})
    flags = {name: bool(fields[name]) for name in ("is_behind", "holds", "is_overtaken")}
    parked_at = row["parked_at"] if isinstance(row["parked_at"], datetime) else datetime.fromisoformat(row["parked_at"])
    return DeadLetter(**fields | flags | {"change": change, "parked_at": parked_at, "number": row["number"]})


def _hold(incarnation: str, lane: str, position: int, ordinal: int, rows: str | None, *flags: int) -> Hold:
    held = tuple((table, key) for table, key in orjson.loads(rows or "[]"))
    return Hold(incarnation, Lane(lane), (position, ordinal), held, *map(bool, flags))


def _place(letter: DeadLetter) -> dict[str, object]:
    position, ordinal = letter.change.place
    return {"incarnation": letter.incarnation, "lane": letter.lane, "position": position, "ordinal": ordinal}
