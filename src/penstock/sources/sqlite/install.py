"""Enabling and disabling capture, each in one transaction."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.errors import CaptureRefused
from penstock.sources.sqlite import catalog
from penstock.sources.sqlite.catalog import Captured
from penstock.sources.sqlite.database import opened, transaction
from penstock.sources.sqlite.schema import Schema, is_ours, read_schema, selector
from penstock.sources.sqlite.shape import TableFacts, refusal, shape_of
from penstock.sources.sqlite.triggers import literal, quoted, triggers

_PATIENCE = 5.0  # seconds to wait for writers


@dataclass(slots=True)
class Report:
    """What was done, or would be: per table, and as SQL."""

    tables: dict[str, str] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)
    is_wal: bool = True


def enable(path: str, tables: str | None = None, *, wal: bool = False, is_trial: bool = False) -> Report:
    """Put the matching tables under capture, and mend the capture of those that changed; a trial leaves no trace."""
    with opened(path, "rw", _PATIENCE) as connection:
        report = Report()
        if wal:
            report.statements.append("pragma journal_mode = wal")
        if wal and not is_trial:
            connection.execute("pragma journal_mode = wal")
        report.is_wal = connection.execute("pragma journal_mode").fetchone() == ("wal",)
        with transaction(connection, "immediate", keeps=not is_trial):
            _Installation(connection, report).enable(selector(tables))
        return report


def disable(path: str, tables: str | None = None, *, is_trial: bool = False) -> Report:
    """Take the matching tables out of capture; without a choice everything goes, the log too."""
    with opened(path, "rw", _PATIENCE) as connection, transaction(connection, "immediate", keeps=not is_trial):
        installation = _Installation(connection, Report())
        if tables is None:
            installation.remove()
        elif has_catalogue(connection):
            installation.disable(selector(tables))
        return installation.report


def renew(path: str) -> str:
    """Begin a new life of the log: positions of the old one no longer mean anything."""
    with opened(path, "rw", _PATIENCE) as connection, transaction(connection, "immediate"):
        incarnation = secrets.token_hex(8)
        connection.execute("update _penstock_meta set value = ? where name = 'incarnation'", (incarnation,))
        return incarnation


@dataclass(frozen=True, slots=True)
class _Installation:
    connection: sqlite3.Connection
    report: Report

    def run(self, sql: str) -> None:
        self.connection.execute(sql)
        self.report.statements.append(sql)

    def enable(self, is_meant: Callable[[str], bool]) -> None:
        if not has_catalogue(self.connection):
            self.found()
        catalogue, schema = catalog.load(self.connection), read_schema(self.connection)
        taken = {_present_name(captured, schema) for captured in catalogue.live}
        _refuse(schema, lambda table: table in taken or is_meant(table))
        known = {captured.shape.table for captured in catalogue.shapes.values()}
        for captured in catalogue.live:
            self.mend(captured, schema)
        for table, facts in schema.tables.items():
            if table not in self.report.tables and is_meant(table):
                self.capture(facts)
                self.report.tables[table] = "enabled"
                if table in known:
                    self.gap(table, "was not captured for a while")

    def found(self) -> None:
        for sql in catalog.TABLES:
            self.run(sql)
        self.run(f"insert into _penstock_meta values('incarnation', {literal(secrets.token_hex(8))}), ('layout', {catalog.LAYOUT})")

    def mend(self, captured: Captured, schema: Schema) -> None:
        """Renew the capture of a table that has changed, or that VACUUM has moved to another row of sqlite_master."""
        found, table = list(catalog.breaches(captured, schema)), _present_name(captured, schema)
        if not found and schema.tables[table].master_row == captured.master_row:
            self.report.tables[table] = "unchanged"
            return
        self.release(captured, schema)
        if table in schema.tables:
            self.capture(schema.tables[table])
        self.report.tables[table] = "renewed: " + (
            "; ".join(f"{one.table} {one.what}" for one in found) or "the file was rewritten"
        )
        for lost in (one for one in found if one.loses):
            self.gap(captured.shape.table, lost.what)

    def capture(self, facts: TableFacts) -> None:
        """A new shape with its triggers. They are created last of all, so that they fire first."""
        shape = shape_of(facts)
        [(number,)] = self.connection.execute("select coalesce(max(number), 0) + 1 from _penstock_shape")
        self.widen("_penstock_gone", len(shape.columns))
        self.widen("_penstock_log", 2 * len(shape.columns))
        for trigger in triggers(shape, number, facts.master_row):
            self.run(trigger.sql)
        made = "select name, sql from sqlite_master where type = 'trigger' and name glob ?"
        present = dict(self.connection.execute(made, (f"_penstock_{number}_*",)))
        values = f"{number}, {literal(shape.to_json())}, {literal(json.dumps(present))}, {facts.master_row}, 1"
        self.run(f"insert into _penstock_shape values({values})")

    def widen(self, table: str, columns: int) -> None:
        [(has,)] = self.connection.execute("select count(*) from pragma_table_info(?) where name glob 'c[0-9]*'", (table,))
        for i in range(has, columns):
            self.run(f"alter table {table} add column c{i}")

    def gap(self, table: str, why: str) -> None:
        """A mark in the log at which pipelines stop: changes of this table are missing before it."""
        number = f"(select max(number) from _penstock_shape where json_extract(shape, '$.table') = {literal(table)})"
        self.run(f"insert into _penstock_log(shape, op, at, c0) values(-{number}, 'gap', julianday('now'), {literal(why)})")

    def release(self, captured: Captured, schema: Schema) -> None:
        present = {trigger.name for trigger in schema.triggers}
        for name in captured.triggers:
            if name in present:
                self.run(f"drop trigger {quoted(name)}")
        self.run(f"delete from _penstock_gone where shape = {captured.number}")
        self.run(f"update _penstock_shape set is_live = 0 where number = {captured.number}")

    def disable(self, is_meant: Callable[[str], bool]) -> None:
        catalogue, schema = catalog.load(self.connection), read_schema(self.connection)
        for captured in catalogue.live:
            if is_meant(captured.shape.table):
                self.release(captured, schema)
                self.report.tables[captured.shape.table] = "disabled"

    def remove(self) -> None:
        """Everything of ours, whatever version made it: triggers first, or no write would succeed."""
        ours = [trigger for trigger in read_schema(self.connection).triggers if is_ours(trigger.name)]
        self.report.tables.update({trigger.table: "disabled" for trigger in ours if not is_ours(trigger.table)})
        for trigger in ours:
            self.run(f"drop trigger {quoted(trigger.name)}")
        for (table,) in self.connection.execute("select name from sqlite_master where name glob '_penstock_*'").fetchall():
            self.run(f"drop table {quoted(table)}")


def has_catalogue(connection: sqlite3.Connection) -> bool:
    """Whether this database has tables of ours."""
    return connection.execute("select 1 from sqlite_master where name = '_penstock_meta'").fetchone() is not None


def _present_name(captured: Captured, schema: Schema) -> str:
    """The name a captured table has now: triggers follow a table that is renamed."""
    return next((trigger.table for trigger in schema.triggers if trigger.name in captured.triggers), captured.shape.table)


def _refuse(schema: Schema, is_meant: Callable[[str], bool]) -> None:
    reasons = {table: refusal(facts) for table, facts in schema.tables.items() if is_meant(table)}
    refused = [f"{table}: {reason}" for table, reason in reasons.items() if reason]
    if refused:
        raise CaptureRefused("these tables cannot be captured exactly: " + "; ".join(refused), "leave them out with --tables REGEX")
