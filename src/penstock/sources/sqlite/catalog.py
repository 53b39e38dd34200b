"""The tables of ours in a captured database: what is captured, and whether it still is as it was."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import CaptureBroken
from penstock.sources.sqlite.schema import PresentTrigger, Schema
from penstock.sources.sqlite.shape import Shape, shape_of

LAYOUT = 2

TABLES = (
    "create table _penstock_meta(name text primary key, value)",
    "create table _penstock_shape(number integer primary key, shape, triggers, master_row, is_live)",
    "create table _penstock_log(seq integer primary key, shape, op, at, tx, old_row_id, new_row_id, c0, c1)",
    "create table _penstock_gone(shape, row_id, c0)",
    "create table _penstock_tx(number integer primary key)",
    "create table _penstock_reader(pipeline, lane, position, history, registered_at, noted_at, released_at,"
    " primary key(pipeline, lane)) without rowid",
    "create trigger _penstock_guard before delete on _penstock_log"
    " when old.seq >= (select min(position) from _penstock_reader where released_at is null)"
    " or old.seq = (select max(seq) from _penstock_log)"
    " begin select raise(abort, 'penstock: this change is still needed'); end",
)


@dataclass(frozen=True, slots=True)
class Captured:
    """A table under capture: its shape, the number that log rows carry, and its triggers as sqlite_master had them."""

    number: int
    shape: Shape
    triggers: Mapping[str, str]
    master_row: int
    is_live: bool


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All that was ever captured in this life of the log."""

    incarnation: str
    shapes: Mapping[int, Captured]

    @property
    def live(self) -> list[Captured]:
        """What is under capture now."""
        return [captured for captured in self.shapes.values() if captured.is_live]


@dataclass(frozen=True, slots=True)
class Breach:
    """A difference between what was captured and what is there; `loses` if changes may be missing from the log without a trace."""

    table: str
    what: str
    loses: bool


def load(connection: sqlite3.Connection) -> Catalogue:
    """The catalogue of this database."""
    meta = dict(connection.execute("select name, value from _penstock_meta"))
    if meta.get("layout") != LAYOUT:
        raise CaptureBroken(
            f"the capture was made by another version of penstock (layout {meta.get('layout')}, ours is {LAYOUT})",
            "disable capture and enable it again, or use that version",
        )
    rows = connection.execute("select number, shape, triggers, master_row, is_live from _penstock_shape order by number")
    shapes = (Captured(row[0], Shape.from_json(row[1]), json.loads(row[2]), row[3], bool(row[4])) for row in rows)
    return Catalogue(meta["incarnation"], {captured.number: captured for captured in shapes})


def breaches(captured: Captured, schema: Schema) -> Iterator[Breach]:
    """Everything that has changed with this table since it was captured."""
    table = captured.shape.table
    ours = [trigger for trigger in schema.triggers if trigger.name in captured.triggers]
    if len(ours) < len(captured.triggers):
        yield Breach(table, "has lost its triggers" if table in schema.tables else "was dropped", loses=True)
    elif ours[0].table != table:
        yield Breach(table, f"was renamed to {ours[0].table}", loses=False)
    else:
        yield from _altered(captured, schema, ours)
    if ours and (late := _late(schema, ours)):
        yield Breach(table, f"got the trigger {late}, which fires before ours", loses=True)


def _altered(captured: Captured, schema: Schema, ours: Sequence[PresentTrigger]) -> Iterator[Breach]:
    table, now = captured.shape.table, shape_of(schema.tables[captured.shape.table])
    is_same = now.create_sql == captured.shape.create_sql
    if not is_same:  # every log row since then carries a negative shape, so nothing is missing unseen
        yield Breach(table, "was altered", loses=False)
    elif {trigger.name: trigger.sql for trigger in ours} != captured.triggers:
        yield Breach(table, "has other triggers than those of capture", loses=True)
    if len(now.uniques) != len(captured.shape.uniques) or (is_same and now != captured.shape):
        yield Breach(table, "has other unique indexes", loses=True)


def _late(schema: Schema, ours: Sequence[PresentTrigger]) -> str | None:
    oldest = min(trigger.row for trigger in ours)
    return next((trigger.name for trigger in schema.foreign(ours[0].table) if trigger.row > oldest), None)
