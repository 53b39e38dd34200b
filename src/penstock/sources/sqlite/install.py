"""Enabling and disabling capture, each in one transaction."""

from __future__ import annotations

import secrets
import sqlite3

from penstock.capture import Report
from penstock.sources.sqlite import catalog
from penstock.sources.sqlite.catalog import Captured
from penstock.sources.sqlite.database import opened, transaction
from penstock.sources.sqlite.heal import lacks, refresh, renew
from penstock.sources.sqlite.installation import Installation, begun, has_catalogue, refuse
from penstock.sources.sqlite.schema import Selects, is_ours, matcher, read_schema
from penstock.sources.sqlite.shape import ROW_IDS_ONLY, TableFacts
from penstock.sources.sqlite.triggers import TOUCHED, literal, quoted

_PATIENCE = 5.0  # seconds to wait for writers
_MISSING = "changes are missing: penstock capture repair"


def enable(
    path: str,
    tables: str | None = None,
    columns: str | None = None,
    *,
    row_ids_only: bool = False,
    wal: bool = False,
    is_trial: bool = False,
) -> Report:
    """Capture the matching tables, and renew the capture of tables that changed; a trial changes nothing.

    `columns` is a regular expression for the whole of `table.column`; without it a table keeps its choice.
    """
    columns = ROW_IDS_ONLY if row_ids_only else columns
    matcher("columns", columns)
    with opened(path, "rw", _PATIENCE) as connection:
        report = Report()
        if wal:
            report.statements.append("pragma journal_mode = wal")
        if wal and not is_trial:
            connection.execute("pragma journal_mode = wal")
        report.is_wal = connection.execute("pragma journal_mode").fetchone() == ("wal",)
        with transaction(connection, "immediate", keeps=not is_trial):
            if not has_catalogue(connection):
                birth = f"'incarnation', {literal(secrets.token_hex(8))}), ('layout', {catalog.LAYOUT}"
                for sql in (*catalog.TABLES, f"insert into _penstock_meta values({birth})"):
                    report.run(connection.execute, sql)
            for sql in list(catalog.upgrade(connection)):
                report.run(connection.execute, sql)
            _enable(begun(connection, report), matcher("tables", tables), columns)
        return report


def disable(path: str, tables: str | None = None, *, is_trial: bool = False) -> Report:
    """End the capture of the matching tables; without a choice, remove everything including the log."""
    with opened(path, "rw", _PATIENCE) as connection, transaction(connection, "immediate", keeps=not is_trial):
        report = Report()
        if tables is None:
            _remove(connection, report)
        elif has_catalogue(connection):
            _disable(begun(connection, report), matcher("tables", tables))
        return report


def _enable(work: Installation, is_meant: Selects, columns: str | None) -> None:
    live = work.catalogue.live
    taken = {work.name(captured) for captured in live if not captured.is_suspended}
    refuse({table: facts for table, facts in work.schema.tables.items() if table in taken or is_meant(table)})
    for captured in live:
        choice = columns if is_meant(captured.shape.table) else None
        work.report.tables[work.name(captured)] = _mend(work, captured, choice)
    for table, facts in work.schema.tables.items():
        if table not in work.report.tables and is_meant(table):
            work.report.tables[table] = _take(work, facts, columns)


def _take(work: Installation, facts: TableFacts, columns: str | None) -> str:
    """Capture a table that is not captured now, and may have been before."""
    known = work.catalogue.named(facts.table)
    if not known:
        work.capture(facts, columns)
        return "enabled"
    is_heir = known.lineage not in {one.lineage for one in work.catalogue.live}
    made = work.capture(facts, known.shape.choice if columns is None else columns, known.lineage if is_heir else None)
    work.gap(made, "was not captured for a while")
    return f"enabled; {_MISSING}"


def _mend(work: Installation, captured: Captured, choice: str | None) -> str:
    """Renew the capture of a table that has changed, or whose row in sqlite_master was moved by VACUUM."""
    if captured.is_suspended:
        return "suspended"
    found, facts = work.breaches(captured), work.facts(captured)
    is_chosen_anew = choice is not None and choice != captured.shape.choice
    if not found and not is_chosen_anew and facts and facts.master_row == captured.master_row:
        if lacks(work, captured.lineage, "event"):
            refresh(work, captured)
        return "unchanged"
    renew(work, captured, found, choice=choice)
    reasons = [f"{one.table} {one.what}" for one in found] or ["other columns" if is_chosen_anew else "the file was rewritten"]
    is_lost = facts is not None and any(breach.loses(None) for breach in found)
    return "renewed: " + "; ".join([*reasons, *([_MISSING] if is_lost else [])])


def _disable(work: Installation, is_meant: Selects) -> None:
    for captured in work.catalogue.live:
        if is_meant(captured.shape.table):
            work.release(captured)
            work.run(f"delete from {TOUCHED} where lineage = {captured.lineage}")
            work.report.tables[captured.shape.table] = "disabled"


def _remove(connection: sqlite3.Connection, report: Report) -> None:
    """Remove everything that any version has made: triggers first, since without their tables every write would fail."""
    ours = [trigger for trigger in read_schema(connection).triggers if is_ours(trigger.name)]
    report.tables.update({trigger.table: "disabled" for trigger in ours if not is_ours(trigger.table)})
    for trigger in ours:
        report.run(connection.execute, f"drop trigger {quoted(trigger.name)}")
    left = "select type, name from sqlite_master where type in ('table', 'view') and name glob '_penstock_*'"
    for kind, name in connection.execute(left).fetchall():
        report.run(connection.execute, f"drop {kind} {quoted(name)}")
