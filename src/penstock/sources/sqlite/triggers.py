"""The triggers of a captured table, as text. Pure.

The SQL works in SQLite 3.15 and later: the triggers run in the programs of the writers.

Unless a writer has set recursive_triggers, REPLACE fires no trigger for the rows that it removes. Before a write, the rows that it
would collide with are copied to `_penstock_gone`; after it, those copied rows that are gone are logged as deletes. A removal that
does fire the delete trigger deletes its copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.sources.sqlite.shape import Shape, Unique

PREFIX = "_penstock_"
GONE = PREFIX + "gone"
TOUCHED = PREFIX + "touched"


def triggers(shape: Shape, number: int, master_row: int) -> list[str]:
    """The SQL of all triggers of a table, in the order of their creation; the newest fires first."""
    text = _Text(shape, number, master_row)
    itself = f"not ({text.is_same('t', 'old')})"
    stayed = f"not ({text.is_same(GONE, 'old')})"
    return [
        text.trigger("collide", "before insert", text.note("1"), when=text.collides("1")),
        text.trigger(
            "move",
            "before update",
            [*text.note(itself), *text.note_written()],
            when=f"({text.moves()}) and ({text.collides(itself)})",
        ),
        text.trigger("delete", "after delete", text.log_delete()),
        text.trigger(
            "update",
            "after update",
            [*text.log_gone(stayed), text.log("update", unless=text.is_overtaken()), *text.forget_written()],
        ),
        text.trigger("insert", "after insert", [*text.log_gone("1"), text.log("insert"), *text.forget_written()]),
    ]


def light_triggers(shape: Shape, number: int, lineage: int) -> list[str]:
    """The SQL of triggers that only record the keys of touched rows. They name no column that ALTER TABLE can drop."""
    text = _Text(replace(shape, uniques=tuple(unique for unique in shape.uniques if unique.is_declared)), number, 0)
    collides = " or ".join(f"({text.meets(one)})" for one in text.uniques)
    wild = " or ".join(text.wild(one) for one in text.uniques if text.guard(one))
    removed = [text.touch(lineage, "t", f" from {text.table} t where {which}") for which in (collides, wild) if which]
    old, new = text.touch(lineage, "old"), text.touch(lineage, "new")
    return [
        text.trigger("collide", "before insert", removed),
        text.trigger("move", "before update", removed),
        text.trigger("delete", "after delete", [old]),
        text.trigger("update", "after update", [old, new]),
        text.trigger("insert", "after insert", [new]),
    ]


def seal_of(number: int | str) -> str:
    """The name of the view that is created after the triggers of a shape.

    A new row of sqlite_master has the greatest row id, and VACUUM keeps the order of triggers and views: triggers after their seal
    were dropped and created again.
    """
    return f"{PREFIX}{number}_seal"


def sealing(number: int) -> str:
    """The statement that creates the seal. It names no table: no change of the schema invalidates it."""
    return f"create view {seal_of(number)} as select {number} as shape"


def noted(shape: Shape) -> list[str]:
    """The copied columns of a row that may be removed: the captured and the unique ones."""
    return list(dict.fromkeys([*shape.columns, *(name for unique in shape.uniques for name, _ in unique.columns)]))


def written(number: int) -> str:
    """The `shape` in `_penstock_gone` of the row that is being updated."""
    return f"'{number} is written'"


def notes_of(number: int) -> str:
    """The condition of all copies of a shape: rows that may be removed, rows whose removal is logged, and the updated row."""
    return f"shape in ({number}, {-number}, {written(number)})"


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class _Text:
    shape: Shape
    number: int
    master_row: int

    @property
    def table(self) -> str:
        return quoted(self.shape.table)

    @property
    def uniques(self) -> list[Unique]:
        row_id = [Unique(((self.shape.row_id, ""),))] if self.shape.row_id else []
        return [*row_id, *self.shape.uniques]

    def trigger(self, deed: str, event: str, statements: Sequence[str], when: str = "") -> str:
        name = f"{PREFIX}{self.number}_{deed}"
        condition = f" when {when}" if when else ""
        body = "".join(f" {statement};" for statement in statements)
        return f"create trigger {name} {event} on {self.table}{condition} begin{body} end"

    def collides(self, among: str) -> str:
        """Whether there are rows to copy, or old copies (of a write that was then ignored) to delete."""
        meetings = [*map(self.meets, self.uniques), *(self.wild(one) for one in self.uniques if self.guard(one))]
        rows = [f"exists(select 1 from {self.table} t where {meeting} and {among})" for meeting in meetings]
        copies = notes_of(self.number) if self.shape.is_circular else f"shape = {self.number}"
        return " or ".join([f"exists(select 1 from {GONE} where {copies})", *rows])

    def meets(self, unique: Unique) -> str:
        """Whether the row to be written collides with `t`; it has the default where REPLACE will set one."""
        defaults = {name: f"coalesce(new.{quoted(name)}, {value})" for name, value in self.shape.filled if value}
        news = [(name, defaults.get(name, self.of("new", name)), collation) for name, collation in unique.columns]
        return self._matches(unique, [_compared(self.of("t", name), new, collation) for name, new, collation in news])

    def wild(self, unique: Unique) -> str:
        """Whether the row may collide with `t`, where a value is known only after the write."""
        unknown = {name for name, value in self.shape.filled if value is None}
        columns = [(name, collation) for name, collation in unique.columns if name not in self.shape.computed]
        parts = [
            f"(new.{quoted(name)} is null or {same})" if name in unknown else same
            for name, collation in columns
            for same in [_compared(self.of("t", name), self.of("new", name), collation)]
        ]
        return f"({self.guard(unique)}) and {self._matches(unique, parts or ['1'])}"

    def guard(self, unique: Unique) -> str:
        """Whether a value of these columns is known only after the write; empty if it never is."""
        names = {name for name, _ in unique.columns}
        is_computed = not names.isdisjoint(self.shape.computed)
        news = [name for name, value in self.shape.filled if is_computed or (value is None and name in names)]
        return " or ".join(f"new.{quoted(name)} is null" for name in news)

    def _matches(self, unique: Unique, parts: Sequence[str]) -> str:
        return " and ".join([*parts, *([f"({unique.predicate})"] if unique.predicate else [])])

    def moves(self) -> str:
        """Whether an update changes a unique value. `update of` would miss aliases of the row id."""
        moved = [f"not ({self.equal(one, 'new', 'old', 'is')})" for one in self.uniques]
        judged = dict.fromkeys(name for one in self.uniques for name in one.predicate_columns)
        for name in map(quoted, judged):  # exactly: a condition may distinguish values that are equal in the collation
            moved.append(f"not (new.{name} is old.{name} collate binary and typeof(new.{name}) = typeof(old.{name}))")
        if self.shape.computed:
            moved += [f"new.{quoted(name)} is null" for name, _ in self.shape.filled]
        return " or ".join(moved)

    def note(self, among: str) -> list[str]:
        any_of = " or ".join(f"({self.meets(one)})" for one in self.uniques)
        wild = " or ".join(f"({self.wild(one)})" for one in self.uniques if self.guard(one))
        guards = " or ".join(guard for one in self.uniques if (guard := self.guard(one)))
        values = ", ".join([str(self.number), self.row_id("t"), *(self.of("t", name) for name in noted(self.shape))])
        rest = f"({guards}) and ({wild}) and ({any_of}) is not 1"  # separate: the first condition uses indexes
        wanted = [f"({any_of})", *([rest] if wild else [])]
        return [*self.begin(), *(f"{self.into_gone} select {values} from {self.table} t where {one} and {among}" for one in wanted)]

    def begin(self) -> list[str]:
        """Delete old copies; inside the removals of another write, first log those that are gone."""
        if not self.shape.is_circular:
            return [self.forget("1")]
        marks = f"shape = {-self.number} and not exists(select 1 from {GONE} where shape = {self.number})"
        cleared = f"shape in ({self.number}, {written(self.number)})"
        return [f"delete from {GONE} where {marks}", *self.log_gone_so_far(), f"delete from {GONE} where {cleared}"]

    @property
    def into_gone(self) -> str:
        return f"insert into {GONE}({', '.join(['shape', 'row_id', *(f'c{i}' for i in range(len(noted(self.shape))))])})"

    def forget(self, which: str) -> str:
        noted = f"shape in ({self.number}, {-self.number})" if self.shape.is_circular else f"shape = {self.number}"
        return f"delete from {GONE} where {noted} and ({which})"

    def log_delete(self) -> list[str]:
        """A delete. If a cascade of a removal by REPLACE can reach the row that is written, no trigger follows that write.

        The rows that are gone by then are logged here, with a mark for their own delete triggers, which recursive_triggers fires
        later. If this row is the one that is written, SQLite removes the other copied rows next: they are logged as untrusted.
        """
        forget = self.forget(self.is_same(GONE, "old"))
        if not self.shape.is_circular:
            return [self.log("delete"), forget]
        noted = f"exists(select 1 from {GONE} where shape = {{}} and {self.is_same(GONE, 'old')})"
        is_logged, is_written = noted.format(-self.number), noted.format(written(self.number))
        rest = f"shape = {self.number} and {is_written}"
        doubtful = self.log_noted(rest, unless="1")
        cleared = f"shape = {written(self.number)} and {self.is_same(GONE, 'old')}"
        deletes = [f"delete from {GONE} where {which}" for which in (rest, cleared)]
        return [self.log("delete", where=f"not {is_logged}"), forget, *self.log_gone_so_far(), doubtful, *deletes]

    def log_gone_so_far(self) -> list[str]:
        gone = f"shape = {self.number} and not exists(select 1 from {self.table} t where {self.is_same('t', GONE)})"
        return [self.log_noted(gone), f"update {GONE} set shape = {-self.number} where {gone}"]

    def log_noted(self, which: str, unless: str = "") -> str:
        """Log copied rows as deletes."""
        values = ", ".join([self.stamp("delete", unless), "row_id", *self.numbered(0)])
        return f"{self.into_log(['old_row_id', *self.numbered(0)])} select {values} from {GONE} where {which}"

    def note_written(self) -> list[str]:
        """Copy the row that is updated."""
        if not self.shape.is_circular:
            return []
        values = ", ".join([written(self.number), self.row_id("old"), *(self.of("old", name) for name in noted(self.shape))])
        return [f"{self.into_gone} values({values})"]

    def forget_written(self) -> list[str]:
        """After a write: no row is being written, and the present row is not gone."""
        if not self.shape.is_circular:
            return []
        mine = f"shape = {-self.number} and {self.is_same(GONE, 'new')}"
        return [f"delete from {GONE} where shape = {written(self.number)} or ({mine})"]

    def log_gone(self, among: str) -> list[str]:
        """Log copied rows that are gone as deletes, except copies of an outer write, which logs them itself."""
        stays = f"exists(select 1 from {self.table} t where {self.is_same('t', GONE)})"
        ours = " or ".join(f"({self.equal(one, GONE, 'new')})" for one in self.uniques)
        gone = f"{among} and ({ours}) and ({self.is_same(GONE, 'new')} or not {stays})"
        return [self.log_noted(f"shape = {self.number} and {gone}"), self.forget(gone)]

    def is_overtaken(self) -> str:
        """Whether the row was changed again before this trigger fired, for example by an ON UPDATE action of a foreign key."""
        now = f"({', '.join(self.values('t'))}) is ({', '.join(self.values('new'))})" if self.shape.columns else "1"
        return f"({self.moves()}) and not exists(select 1 from {self.table} t where {self.is_same('t', 'new')} and {now})"

    def log(self, op: str, unless: str = "", where: str = "") -> str:
        """Log one event, with the old row, the new one, or both."""
        sides = {"insert": ["new"], "delete": ["old"], "update": ["old", "new"]}[op]
        images = [self.numbered(i * len(self.shape.columns)) for i in range(len(sides))]
        columns = [f"{side}_row_id" for side in sides] + [column for image in images for column in image]
        values = [self.row_id(side) for side in sides] + [value for side in sides for value in self.values(side)]
        row = f"{self.stamp(op, unless)}, {', '.join(values)}"
        return f"{self.into_log(columns)} select {row} where {where}" if where else f"{self.into_log(columns)} values({row})"

    def touch(self, lineage: int, side: str, source: str = "") -> str:
        """Record the key of a row."""
        key = [f"c{i}" for i in range(len(self.shape.key))]
        values = [str(lineage), self.row_id(side), *(self.of(side, name) for name in self.shape.key)]
        return f"insert into {TOUCHED}({', '.join(['lineage', 'row_id', *key])}) select {', '.join(values)}{source}"

    def into_log(self, columns: Sequence[str]) -> str:
        return f"insert into {PREFIX}log(shape, op, at, tx, {', '.join(columns)})"

    def stamp(self, op: str, unless: str = "") -> str:
        """Shape, op, time, and the number that a writer has given its transaction.

        The number of the shape is negative if the event is untrusted, because the table was altered. The row of sqlite_master is
        found by its row id, or by a search after VACUUM has renumbered it.
        """
        same = f"sql = {literal(self.shape.create_sql)}"
        found = f"select {self.number} from sqlite_master where"
        number = f"coalesce(({found} rowid = {self.master_row} and {same}), ({found} type = 'table' and {same}), {-self.number})"
        number = f"case when {unless} then {-self.number} else {number} end" if unless else number
        return f"{number}, '{op}', julianday('now'), (select number from {PREFIX}tx)"

    def row_id(self, side: str) -> str:
        return self.of(side, self.shape.row_id) if self.shape.row_id else "null"

    def values(self, side: str) -> list[str]:
        return [self.of(side, name) for name in self.shape.columns]

    def numbered(self, first: int) -> list[str]:
        return [f"c{first + i}" for i in range(len(self.shape.columns))]

    def is_same(self, left: str, right: str) -> str:
        """Whether both are the same row, by row id or else by primary key."""
        return self.equal(self.uniques[0], left, right)

    def equal(self, unique: Unique, left: str, right: str, sign: str = "=") -> str:
        return " and ".join(
            _compared(self.of(left, name), self.of(right, name), collation, sign) for name, collation in unique.columns
        )

    def of(self, side: str, name: str) -> str:
        """A column of the table `t`, of NEW or OLD, or of the copies, which have numbered columns."""
        if side == GONE:
            return f"{GONE}.row_id" if name == self.shape.row_id else f"{GONE}.c{noted(self.shape).index(name)}"
        return f"{side}.{name if name == self.shape.row_id else quoted(name)}"


def _compared(left: str, right: str, collation: str, sign: str = "=") -> str:
    return f"{left} {sign} {right}" + (f" collate {quoted(collation)}" if collation else "")
