"""The tables of Penstock in a captured database: the captured tables, and the check that they are unchanged."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.errors import CaptureBroken
from penstock.sources.sqlite.database import enable_remedy
from penstock.sources.sqlite.schema import PresentTrigger, Schema
from penstock.sources.sqlite.shape import Shape, shape_of
from penstock.sources.sqlite.triggers import seal_of, sealing

LAYOUT = 4
UNSEALED = 3  # the previous layout, which has no seals
TABLES = (
    "create table _penstock_meta(name text primary key, value)",
    "create table _penstock_shape(number integer primary key, lineage, role, shape, triggers, master_row, is_live, is_suspended)",
    "create table _penstock_log(seq integer primary key, shape, op, at, tx, old_row_id, new_row_id, c0, c1)",
    "create table _penstock_gone(shape, row_id, c0)",
    "create table _penstock_touched(lineage, row_id, c0)",
    "create table _penstock_healing(lineage integer primary key, rows_upto, whole_upto)",
    "create table _penstock_tx(number integer primary key)",
    "create table _penstock_reader(pipeline, lane, position, history, registered_at, noted_at, released_at,"
    " primary key(pipeline, lane)) without rowid",
    "create trigger _penstock_guard before delete on _penstock_log"
    " when old.seq >= (select min(position) from _penstock_reader where released_at is null)"
    " or old.seq = (select max(seq) from _penstock_log)"
    " begin select raise(abort, 'penstock: this change is still needed'); end",
)


class Role(Enum):
    """The purpose of a shape."""

    CAPTURE = "capture"  # events with images
    WATCH = "watch"  # while suspended: keys of touched rows
    KEY = "key"  # deletes found by healing, with the key alone


@dataclass(frozen=True, slots=True)
class Captured:
    """A captured table: its shape, the number of the shape in log rows, and its triggers as in sqlite_master.

    All shapes of one table, through renames and rebuilds, have one lineage.
    """

    number: int
    lineage: int
    role: Role
    shape: Shape
    triggers: Mapping[str, str]
    master_row: int
    is_live: bool
    is_suspended: bool = False


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All shapes of this incarnation of the log."""

    incarnation: str
    shapes: Mapping[int, Captured]

    @property
    def live(self) -> list[Captured]:
        """The tables that are captured now, also suspended ones."""
        return [captured for captured in self.shapes.values() if captured.is_live]

    def last(self, lineage: int) -> Captured:
        """The last shape of a table for events."""
        return [one for one in self.shapes.values() if one.lineage == lineage and one.role is Role.CAPTURE][-1]

    def named(self, table: str) -> Captured | None:
        """The last shape for events of a table with this name."""
        found = [one for one in self.shapes.values() if one.shape.table == table and one.role is Role.CAPTURE]
        return found[-1] if found else None


class Loss(Enum):
    """The changes that the log may lack after a breach."""

    NOTHING = 0  # untrusted rows are marked as such
    ORDER = 1  # later rows may have wrong images
    REMOVALS = 2  # later writes may have removed rows that the log lacks
    EVERYTHING = 3


@dataclass(frozen=True, slots=True)
class Breach:
    """A difference between a table and its captured shape."""

    table: str
    what: str
    loss: Loss

    def loses(self, has_writes: bool | None) -> bool:
        """Whether changes are lost; `has_writes`: whether the table was written since it was last sound, if known."""
        if self.loss is Loss.ORDER:
            return has_writes is None
        return self.loss is Loss.EVERYTHING or (self.loss is Loss.REMOVALS and has_writes is not False)


@dataclass(frozen=True, slots=True)
class Healing:
    """The positions up to which later rows of the log replace untrusted rows, and replace everything."""

    rows_upto: int = 0
    whole_upto: int = 0

    @property
    def upto(self) -> int:
        """The position up to which untrusted rows are replaced, also by a rescan."""
        return max(self.rows_upto, self.whole_upto)

    def covers(self, position: int, op: str) -> bool:
        """Whether a reader may pass a row that is no event."""
        return position <= (self.whole_upto if op == "gap" else self.upto)


def load(connection: sqlite3.Connection) -> Catalogue:
    """The catalogue of this database."""
    meta = dict(connection.execute("select name, value from _penstock_meta"))
    if (layout := meta.get("layout")) != LAYOUT:
        [(path,)] = connection.execute("select file from pragma_database_list where name = 'main'")
        raise CaptureBroken(
            f"the capture was made by another version of penstock (layout {layout}, this version has {LAYOUT})",
            enable_remedy(path) if layout == UNSEALED else "disable capture and enable it again, or use that version",
        )
    return Catalogue(meta["incarnation"], _shapes(connection))


def _shapes(connection: sqlite3.Connection) -> dict[int, Captured]:
    columns = "number, lineage, role, shape, triggers, master_row, is_live, is_suspended"
    return {
        number: Captured(
            number, lineage, Role(role), Shape.from_json(shape), json.loads(triggers), row, bool(live), bool(suspended)
        )
        for number, lineage, role, shape, triggers, row, live, suspended in connection.execute(
            f"select {columns} from _penstock_shape order by number"
        )
    }


def upgrade(connection: sqlite3.Connection) -> Iterator[str]:
    """The statements that upgrade the previous layout; none for the current one."""
    if connection.execute("select value from _penstock_meta where name = 'layout'").fetchone() == (UNSEALED,):
        yield from (sealing(captured.number) for captured in _shapes(connection).values() if captured.is_live)
        yield f"update _penstock_meta set value = {LAYOUT} where name = 'layout'"


def healings(connection: sqlite3.Connection) -> dict[int, Healing]:
    """The healing of each lineage."""
    rows = connection.execute("select lineage, rows_upto, whole_upto from _penstock_healing")
    return {lineage: Healing(rows_upto, whole_upto) for lineage, rows_upto, whole_upto in rows}


def breaches(captured: Captured, schema: Schema) -> Iterator[Breach]:
    """All differences between a table and its captured shape."""
    table = captured.shape.table
    ours = [trigger for trigger in schema.triggers if trigger.name in captured.triggers]
    if len(ours) < len(captured.triggers):
        yield Breach(table, "has lost its triggers" if table in schema.tables else "was dropped", Loss.EVERYTHING)
    elif not is_sealed(captured, schema):
        yield Breach(table, "had its triggers dropped and created again", Loss.EVERYTHING)
    else:
        yield from _altered(captured, schema, ours)
    oldest = min((trigger.row for trigger in ours), default=0)
    foreign = schema.foreign(ours[0].table) if ours else ()
    if late := next((trigger.name for trigger in foreign if trigger.row > oldest), None):
        yield Breach(table, f"got the trigger {late}, which fires before those of capture", Loss.ORDER)


def is_sealed(captured: Captured, schema: Schema) -> bool:
    """Whether all triggers of a shape exist, and were not created again."""
    seal, rows = schema.seals.get(seal_of(captured.number), 0), {one.name: one.row for one in schema.triggers}
    return all(name in rows and rows[name] < seal for name in captured.triggers)


def _altered(captured: Captured, schema: Schema, ours: Sequence[PresentTrigger]) -> Iterator[Breach]:
    was, now = captured.shape, shape_of(schema.tables[ours[0].table], captured.shape.choice)
    if now.table != was.table:
        yield Breach(was.table, f"was renamed to {now.table}", Loss.NOTHING)
    elif now.create_sql != was.create_sql:  # all later log rows have a negative shape
        yield Breach(was.table, "was altered", Loss.NOTHING)
    elif {trigger.name: trigger.sql for trigger in ours} != captured.triggers:
        yield Breach(was.table, "has other triggers than those of capture", Loss.EVERYTHING)
    if computed := sorted((now.names - was.names) & schema.tables[now.table].generated):
        yield Breach(was.table, f"got the generated column {computed[0]}, which all rows have", Loss.EVERYTHING)
    is_renamed = not was.names <= now.names  # then the columns of its indexes have other names
    if _columns(now) != _columns(was) and not (is_renamed and len(now.uniques) == len(was.uniques)):
        yield Breach(was.table, "has other unique indexes", Loss.REMOVALS)
    elif now.is_circular and not was.is_circular:
        yield Breach(was.table, "has rows that REPLACE removes by a foreign key that leads back to it", Loss.REMOVALS)
    elif now.collisions != was.collisions and not is_renamed:
        yield Breach(was.table, "has triggers of an earlier version, which miss some removals by REPLACE", Loss.REMOVALS)


def _columns(shape: Shape) -> list[object]:
    return [(unique.columns, unique.is_declared) for unique in shape.uniques]


def strays(catalogue: Catalogue, schema: Schema, is_meant: Callable[[str], bool]) -> Iterator[str]:
    """Sentences about names that a pipeline chose and whose captured tables were renamed."""
    live = {captured.shape.table: captured for captured in catalogue.live}
    heirs = {captured.lineage: captured.shape.table for captured in catalogue.live}
    for table, lineage in dict.fromkeys((one.shape.table, one.lineage) for one in catalogue.shapes.values()):
        heir = heirs.get(lineage)
        if heir is None or table in live or not is_meant(table):
            continue
        if table in schema.tables:
            yield f"{table} was renamed to {heir}, and the present table {table} is not captured"
        elif not is_meant(heir):
            yield f"{table} was renamed to {heir}, which the pipeline's `tables` does not choose"
