"""Comparing tables with the log: the last image of each key must be the present row. In SQL, with bounded memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.capture import Comparison, Difference, Verification
from penstock.sources.sqlite.catalog import Captured, Role
from penstock.sources.sqlite.database import opened, transaction
from penstock.sources.sqlite.heal import is_row, same_key, sides
from penstock.sources.sqlite.image import OLD, VALUES, imager, text_or_bytes
from penstock.sources.sqlite.installation import Installation, begun
from penstock.sources.sqlite.shape import Shape
from penstock.sources.sqlite.survey import state_of
from penstock.sources.sqlite.triggers import TOUCHED, quoted

LISTED = 20  # listed differences of a table; further ones are counted
_LAST = "temp.penstock_last"
_JUDGED = "k.shape > 0"  # a negative shape marks an untrusted event


def verify(path: str, tables: str | None = None, sample: int | None = None) -> Verification:
    """Compare captured tables with the log; with `sample`, that number of random keys of each."""
    with opened(path) as connection, transaction(connection):
        work = begun(connection)
        first, head = connection.execute("select min(seq), max(seq) from _penstock_log").fetchone()
        return Verification(path, first, head, tuple(_verdict(work, captured, sample) for captured in work.chosen(tables)))


def _verdict(work: Installation, captured: Captured, sample: int | None) -> Comparison:
    touched = work.one(f"select count(*) from (select distinct * from {TOUCHED} where lineage = {captured.lineage})")
    state, why = state_of(work, captured, touched)
    table, facts, shape = work.name(captured), work.facts(captured), work.catalogue.last(captured.lineage).shape
    if facts is None:
        return Comparison(table, "not comparable", "the table does not exist")
    present = {column["name"] for column in facts.columns}
    if not present.issuperset(shape.key) or (shape.row_id in present) or (facts.without_rowid and shape.row_id):
        return Comparison(table, "not comparable", "; ".join(part for part in ("its key was altered", why) if part))
    compared = _Comparison(work, captured, shape, table)
    compared.gather(sample)
    return compared.verdict(state, why, present, is_sample=sample is not None)


class _Comparison:
    """The comparison of one table with the log."""

    def __init__(self, work: Installation, captured: Captured, shape: Shape, table: str) -> None:
        self.work, self.captured, self.shape, self.table = work, captured, shape, table
        self.known = [one for one in work.lineage(captured.lineage) if len(one.shape.key) == len(shape.key)]
        self.keys = [f"c{i}" for i in range(len(shape.key))]
        self.events = _schema_events(work, captured.lineage)
        self.floor, self.is_whole = _floor(self.events, work.one("select min(seq) from _penstock_log"))

    def gather(self, sample: int | None) -> None:
        """Collect the last event of each key; its place is odd if the row exists after it."""
        execute, columns = self.work.connection.execute, ", ".join(["shape", "row_id", *self.keys])
        last = f"select max(place) as place, {columns} from ({{}}) group by {same_key(self.keys)}"
        for name in ("temp.penstock_found", _LAST):
            execute(f"drop table if exists {name}")
        execute(f"create temp table penstock_found(place, {columns})")
        for part in [*(side for one in self.known for side in _sides(one)), *self._touched()]:
            execute(f"insert into temp.penstock_found {last.format(part)}")
        order = "" if sample is None else f" order by random() limit {sample}"
        execute(f"create temp table penstock_last as {last.format('select * from temp.penstock_found')}{order}")

    def _touched(self) -> Iterator[str]:
        """Rows that were touched while suspended, as untrusted last events."""
        one = self.captured
        if one.role is Role.WATCH and len(one.shape.key) == len(self.keys):
            columns = ", ".join([f"{2 * self.work.head() + 2} as place", f"{-one.number} as shape", "row_id", *self.keys])
            yield f"select {columns} from {TOUCHED} where lineage = {one.lineage}"

    def verdict(self, state: str, why: str, present: set[str], *, is_sample: bool) -> Comparison:
        """The result of the comparison."""
        one = self.work.one
        unjudged = one(f"select count(*) from {_LAST} k where not ({_JUDGED})")
        compared = one(f"select count(*) from {_LAST}") - unjudged
        mentioned = one(f"select count(*) from {_LAST} k cross join {quoted(self.table)} t where {is_row(self.shape)}")
        unmentioned = None if is_sample else one(f"select count(*) from {quoted(self.table)}") - mentioned
        is_whole = self.is_whole and state != "suspended" and not is_sample
        found, count = [], 0
        for difference in self._differences(present, judges_unmentioned=is_whole and bool(unmentioned)):
            count += 1
            found += [difference] if count <= LISTED else []
        return Comparison(self.table, state, why, compared, count, tuple(found), unjudged, unmentioned, is_whole)

    def _differences(self, present: set[str], *, judges_unmentioned: bool) -> Iterator[Difference]:
        for number, columns in self._columns(present).items():
            yield from self._altered(number, columns)
        yield from self._undeleted()
        if judges_unmentioned:
            yield from self._unmentioned()

    def _altered(self, number: int, columns: Mapping[int, str]) -> Iterator[Difference]:
        """Rows that exist by an image of this shape, and are missing or differ."""
        width = len(self.work.catalogue.shapes[number].shape.columns)
        images = {name: f"case when g.op = 'update' then g.c{width + i} else g.c{i} end" for i, name in columns.items()}
        same = "t.{0} is ({1}) collate binary and typeof(t.{0}) = typeof({1})"
        differs = [f"when not ({same.format(quoted(name), image)}) then {i}" for i, (name, image) in enumerate(images.items())]
        is_missing = f"t.{self.shape.row_id or quoted(self.shape.key[0])} is null"
        table = f"{quoted(self.table)} t on {is_row(self.shape)}"
        rows = (  # a subquery: a column of the table may have the name `what`
            f"select case when {is_missing} then -1 {' '.join(differs)} end as what, k.*"
            f" from {_LAST} k cross join _penstock_log g on g.seq = k.place / 2 left join {table}"
            f" where k.shape = {number} and {self._is_there()} and {_JUDGED}"
        )
        sql = f"select what, k.row_id, {self._listed('k')} from ({rows}) k where what is not null"
        for what, row_id, *keys in self._ordered(sql):
            missing = Difference(self._key(row_id, keys), "is not in the table")
            yield missing if what < 0 else Difference(missing.key, "differs", list(images)[what])

    def _undeleted(self) -> Iterator[Difference]:
        """Rows that are deleted by the log, and exist."""
        sql = f"select k.row_id, {self._listed('k')} from {_LAST} k cross join {quoted(self.table)} t where {is_row(self.shape)}"
        for row_id, *keys in self._ordered(f"{sql} and not ({self._is_there()}) and {_JUDGED}"):
            yield Difference(self._key(row_id, keys), "is in the table, and deleted in the log")

    def _unmentioned(self) -> Iterator[Difference]:
        names = [f"t.{quoted(name)} collate binary" for name in self.shape.key] or [f"t.{self.shape.row_id}"]
        sql = (
            f"select {', '.join(names)} from {quoted(self.table)} t except select {', '.join(self.keys or ['row_id'])} from {_LAST}"
        )
        for keys in self._fetched(sql):
            yield Difference(self._key(keys[0], keys if self.shape.key else ()), "is in the table, and not in the log")

    def _columns(self, present: set[str]) -> dict[int, dict[int, str]]:
        """By shape: the columns of its images that the table still has, by place, with their present names."""
        shapes = [one for one in self.known if one.role is Role.CAPTURE]
        found: dict[int, dict[int, str]] = {}
        for one in shapes:
            names = dict(enumerate(one.shape.columns))
            for later in (other for other in shapes if other.number > one.number):
                renamed = self.events.get(later.number, {}).get("renamed", {})
                names = {i: renamed.get(name, name) for i, name in names.items()}
                names = {i: name for i, name in names.items() if name in later.shape.names}
            found[one.number] = {i: name for i, name in names.items() if name in present}
        return found

    def _is_there(self) -> str:
        return f"k.place % 2 = 1 and k.place / 2 > {self.floor}"

    def _listed(self, side: str) -> str:
        return ", ".join(f"{side}.{key}" for key in self.keys) or "null"

    def _ordered(self, sql: str) -> Iterator[tuple[Any, ...]]:
        return self._fetched(f"{sql} order by {self._listed('k')}, k.row_id")

    def _fetched(self, sql: str) -> Iterator[tuple[Any, ...]]:
        connection = self.work.connection
        connection.text_factory = text_or_bytes
        yield from connection.execute(sql)
        connection.text_factory = str

    def _key(self, row_id: int | None, keys: Iterable[object]) -> str:
        row: list[object] = [None] * VALUES
        row[OLD] = row_id
        return imager(self.shape.of_key()).makers["delete"].key((*row, *keys))


def _sides(known: Captured) -> Iterator[str]:
    """SQL for the rows of the events of a shape, with their keys."""
    for row_id, columns, ops in sides(known.shape):
        place = "2 * seq" if row_id == "old_row_id" else "2 * seq + 1"
        values = [f"{place} as place", "shape", f"{row_id} as row_id", *(f"{name} as c{i}" for i, name in enumerate(columns))]
        which = f"shape in ({known.number}, {-known.number}) and op in ({ops})"
        yield f"select {', '.join(values)} from _penstock_log where {which}"


def _schema_events(work: Installation, lineage: int) -> dict[int, dict[str, Any]]:
    """By shape, the facts of its schema event and its rescan; `gone` is the position at which the table was dropped."""
    numbers = ", ".join(str(one.number) for one in work.lineage(lineage))
    found: dict[int, dict[str, Any]] = {}
    sql = f"select seq, shape, c1 from _penstock_log where op = 'schema' and shape in ({numbers}) order by seq"
    for seq, number, after in work.connection.execute(sql):
        found.setdefault(number, {}).update(json.loads(after) if after else {"gone": seq})
    return found


def _floor(events: Mapping[int, Mapping[str, Any]], first: int | None) -> tuple[int, bool]:
    """The position up to which rows are gone that no later event names, and whether later events name all rows."""
    scans = [one["since"] for one in events.values() if "since" in one]
    return max([0, *scans, *(one["gone"] for one in events.values() if "gone" in one)]), max(scans, default=-1) >= (first or 0)
