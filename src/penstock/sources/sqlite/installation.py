"""The statements that capture tables, inside one transaction of the caller."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.capture import Report
from penstock.errors import CaptureRefused, ConfigInvalid
from penstock.sources.sqlite import catalog
from penstock.sources.sqlite.catalog import Breach, Captured, Catalogue, Role
from penstock.sources.sqlite.schema import Schema, matcher, read_schema
from penstock.sources.sqlite.shape import Shape, TableFacts, refusal, shape_of
from penstock.sources.sqlite.triggers import (
    GONE,
    PREFIX,
    light_triggers,
    literal,
    noted,
    notes_of,
    quoted,
    seal_of,
    sealing,
    triggers,
)


@dataclass(frozen=True, slots=True)
class Installation:
    """The statements, on the state of the database at the beginning of the transaction."""

    connection: sqlite3.Connection
    report: Report
    catalogue: Catalogue
    schema: Schema
    doubts: Mapping[tuple[int, str], int]  # the last gap and the last untrusted event, by shape

    def run(self, sql: str) -> None:
        """Execute a statement and add it to the report."""
        self.report.run(self.connection.execute, sql)

    def one(self, sql: str) -> Any:
        """The one value of a query."""
        [(value,)] = self.connection.execute(sql)
        return value

    def capture(self, facts: TableFacts, choice: str | None, lineage: int | None = None, *, is_suspended: bool = False) -> Captured:
        """A new shape with its triggers, which are the newest and fire first."""
        shape, number = shape_of(facts, choice), self._next()
        self.widen(GONE, len(noted(shape)))
        self.widen("_penstock_log", 2 * len(shape.columns))
        made = self._make(triggers(shape, number, facts.master_row), number)
        return self._keep(Captured(number, lineage or number, Role.CAPTURE, shape, made, facts.master_row, True, is_suspended))

    def watch(self, facts: TableFacts, choice: str | None, lineage: int) -> Captured:
        """A new shape with triggers that only record touched rows."""
        shape, number = shape_of(facts, choice).of_key(), self._next()
        self.widen("_penstock_touched", len(shape.key))
        made = self._make(light_triggers(shape, number, lineage), number)
        return self._keep(Captured(number, lineage, Role.WATCH, shape, made, facts.master_row, True, True))

    def key_shape(self, captured: Captured) -> int:
        """The shape of deletes with the key alone."""
        shape = captured.shape.of_key()
        for known in catalog.load(self.connection).shapes.values():
            if (known.lineage, known.shape) == (captured.lineage, shape):
                return known.number
        return self._keep(Captured(self._next(), captured.lineage, Role.KEY, shape, {}, captured.master_row, False)).number

    def _next(self) -> int:
        return int(self.one("select coalesce(max(number), 0) + 1 from _penstock_shape"))

    def _make(self, wanted: list[str], number: int) -> dict[str, str]:
        for sql in (*wanted, sealing(number)):
            self.run(sql)
        made = "select name, sql from sqlite_master where type = 'trigger' and name glob ?"
        return dict(self.connection.execute(made, (f"{PREFIX}{number}_*",)))

    def _keep(self, captured: Captured) -> Captured:
        texts = [captured.role.value, captured.shape.to_json(), json.dumps(captured.triggers)]
        flags = f"{captured.master_row}, {captured.is_live:d}, {captured.is_suspended:d}"
        values = f"{captured.number}, {captured.lineage}, {', '.join(map(literal, texts))}, {flags}"
        self.run(f"insert into _penstock_shape values({values})")
        return captured

    def widen(self, table: str, columns: int) -> None:
        """Give a table of Penstock this number of numbered columns."""
        [(has,)] = self.connection.execute("select count(*) from pragma_table_info(?) where name glob 'c[0-9]*'", (table,))
        for i in range(has, columns):
            self.run(f"alter table {table} add column c{i}")

    def gap(self, captured: Captured, why: str) -> None:
        """Log a gap, at which pipelines stop: changes of this table are missing before it."""
        self._log(f"{-captured.number}, 'gap'", literal(why), "null")

    def log_schema(self, captured: Captured, was: Shape | None, now: Shape | None, **more: object) -> None:
        """Log a schema event: the shapes before and after; the table is gone if there is no `now`."""
        before, after = (json.dumps(shape.outline() | facts) if shape else None for shape, facts in ((was, {}), (now, more)))
        self._log(f"{captured.number}, 'schema'", *("null" if text is None else literal(text) for text in (before, after)))

    def _log(self, stamp: str, *values: str) -> None:
        self.run(f"insert into _penstock_log(shape, op, at, c0, c1) values({stamp}, julianday('now'), {', '.join(values)})")

    def head(self) -> int:
        """The last position of the log."""
        return int(self.one("select coalesce(max(seq), 0) from _penstock_log"))

    def lineage(self, lineage: int) -> list[Captured]:
        """All shapes of a table that have rows in the log."""
        return [one for one in self.catalogue.shapes.values() if one.lineage == lineage and one.role is not Role.WATCH]

    def meant(self, tables: str | None) -> list[Captured]:
        """The captured tables whose old or present names match."""
        is_meant = matcher("tables", tables)
        return [one for one in self.catalogue.live if is_meant(one.shape.table) or is_meant(self.name(one))]

    def chosen(self, tables: str | None) -> list[Captured]:
        """Those that are meant. Raises ConfigInvalid if there is none."""
        if not (found := self.meant(tables)):
            raise ConfigInvalid("no such table is captured", "see: penstock capture status DATABASE")
        return found

    def breaches(self, captured: Captured) -> list[Breach]:
        """All differences between a table and its captured shape."""
        return list(catalog.breaches(captured, self.schema))

    def name(self, captured: Captured) -> str:
        """The present name of a captured table: triggers follow a table that is renamed."""
        found = (trigger.table for trigger in self.schema.triggers if trigger.name in captured.triggers)
        return next(found, captured.shape.table)

    def facts(self, captured: Captured) -> TableFacts | None:
        """The present table, if it exists."""
        return self.schema.tables.get(self.name(captured))

    def release(self, captured: Captured) -> None:
        """Remove the triggers of a shape."""
        present = {trigger.name for trigger in self.schema.triggers}
        for name in captured.triggers:
            if name in present:
                self.run(f"drop trigger {quoted(name)}")
        self.run(f"drop view if exists {seal_of(captured.number)}")
        self.run(f"delete from _penstock_gone where {notes_of(captured.number)}")
        self.run(f"update _penstock_shape set is_live = 0, is_suspended = 0 where number = {captured.number}")


def begun(connection: sqlite3.Connection, report: Report | None = None) -> Installation:
    """The state of a database with capture, inside an open transaction."""
    op = "case op when 'gap' then op else 'event' end"
    found = connection.execute(f"select -shape, {op}, max(seq) from _penstock_log where shape < 0 group by 1, 2")
    doubts = {(number, op): position for number, op, position in found}
    return Installation(connection, report or Report(), catalog.load(connection), read_schema(connection), doubts)


def has_catalogue(connection: sqlite3.Connection) -> bool:
    """Whether this database has the tables of Penstock."""
    return connection.execute("select 1 from sqlite_master where name = '_penstock_meta'").fetchone() is not None


def refuse(tables: dict[str, TableFacts]) -> None:
    """Raise CaptureRefused if one of these cannot be captured exactly."""
    refused = [f"{table}: {reason}" for table, facts in tables.items() if (reason := refusal(facts))]
    if refused:
        raise CaptureRefused("these tables cannot be captured exactly: " + "; ".join(refused), "leave them out with --tables REGEX")
