"""Rescanning a table whose changes are missing: all its rows follow in the log as `refresh`, between two marks.

The marks are schema events with `"rescan": "begin"` and `"rescan": "end"`; the end names the position of its beginning. A row that
is not logged between the two does not exist. Writers continue meanwhile: a chunk of rows takes one short transaction.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.capture import Progress, Report
from penstock.errors import CaptureBroken, ConfigInvalid
from penstock.sources.sqlite.catalog import Captured
from penstock.sources.sqlite.database import opened, schema_version, transaction
from penstock.sources.sqlite.heal import lacks, record, renew
from penstock.sources.sqlite.installation import Installation, begun, refuse
from penstock.sources.sqlite.shape import has_fixed_row_ids
from penstock.sources.sqlite.triggers import TOUCHED, quoted

DROPPED = "was dropped (if it was renamed: capture enable, then capture repair with its new name)"
CHUNK = 2000  # rows logged in one transaction: some milliseconds
_PATIENCE = 10.0  # seconds to wait for writers
_PAUSE = 0.002  # seconds for writers between two transactions


def silent(table: str, done: int, of: int) -> None:
    """No progress is shown."""


@dataclass(frozen=True, slots=True)
class Rescan:
    """A table whose rescan has begun."""

    captured: Captured
    begin: int


def repair(path: str, tables: str | None = None, progress: Progress = silent) -> Report:
    """Renew the capture of tables and log all their rows; without a choice, of tables whose changes are missing."""
    return rescanned(path, lambda work: _begin(work, tables), "repaired", progress)


def rescanned(path: str, opening: Callable[[Installation], list[Rescan]], done: str, progress: Progress) -> Report:
    """Begin rescans in one transaction, and complete each after it."""
    with opened(path, "rw", _PATIENCE) as connection:
        report = Report()
        with transaction(connection, "immediate"):
            rescans, version = opening(begun(connection, report)), schema_version(connection)
        for rescan in rescans:
            rows = scan(connection, rescan, version, progress)
            report.tables[rescan.captured.shape.table] = f"{done}: all {rows} rows logged again"
        return report


def _begin(work: Installation, tables: str | None) -> list[Rescan]:
    meant = work.meant(tables)
    if tables is not None and not meant:
        raise ConfigInvalid(f"no table that matches {tables!r} is captured", "see: penstock capture status DATABASE")
    rescans = [_open(work, one, is_asked=tables is not None) for one in meant]
    return [rescan for rescan in rescans if rescan]


def _open(work: Installation, captured: Captured, *, is_asked: bool) -> Rescan | None:
    """Renew capture if needed, and begin a rescan if needed or asked for."""
    table, facts, found = work.name(captured), work.facts(captured), work.breaches(captured)
    if captured.is_suspended:
        work.report.tables[table] = "suspended: penstock capture resume"
        return None
    if not (is_asked or lacks(work, captured.lineage, "gap") or any(breach.loses(None) for breach in found)):
        return None
    if facts:
        refuse({table: facts})
    fresh = renew(work, captured, found) if found else captured
    if fresh is None:
        work.report.tables[table] = DROPPED
        return None
    return begin(work, fresh)


def begin(work: Installation, captured: Captured) -> Rescan:
    """Log the first mark. Rows that were touched while suspended are logged with all others."""
    work.log_schema(captured, None, captured.shape, rescan="begin")
    work.run(f"delete from {TOUCHED} where lineage = {captured.lineage}")
    return Rescan(captured, work.head())


def scan(connection: sqlite3.Connection, rescan: Rescan, version: int, progress: Progress) -> int:
    """Log all rows and the second mark; return the number of rows."""
    captured = rescan.captured
    [(total,)] = connection.execute(f"select count(*) from {quoted(captured.shape.table)}")
    _make_bookmark(connection, captured)
    done, is_over = 0, False
    while not is_over:
        with transaction(connection, "immediate"):
            version = _still(connection, captured, version)
            rows = _log_chunk(connection, captured, is_first=done == 0)
            done, is_over = done + rows, rows < CHUNK
            if is_over:
                _end(begun(connection), rescan)
        progress(captured.shape.table, done, max(done, total))
        time.sleep(_PAUSE)
    return done


def _still(connection: sqlite3.Connection, captured: Captured, version: int) -> int:
    """The present version of the schema. Raises CaptureBroken if it has changed for this table."""
    now = schema_version(connection)
    if now == version:
        return now
    work = begun(connection)
    facts = work.facts(captured)
    is_live = captured.number in {one.number for one in work.catalogue.live}
    has_places = facts is not None and (facts.without_rowid or has_fixed_row_ids(facts))  # VACUUM changes the version, too
    if not is_live or not has_places or work.breaches(captured):
        raise CaptureBroken(f"the schema changed while {captured.shape.table} was scanned", "run the same command again")
    return now


def _end(work: Installation, rescan: Rescan) -> None:
    captured = rescan.captured
    work.log_schema(captured, None, captured.shape, rescan="end", since=rescan.begin)
    work.run(f"update _penstock_shape set is_suspended = 0 where number = {captured.number}")
    record(work, captured.lineage, whole_upto=rescan.begin)


def _make_bookmark(connection: sqlite3.Connection, captured: Captured) -> None:
    """Create a temporary table for the last logged row: it keeps values exactly, also text that is not UTF-8."""
    columns = ", ".join(f"c{i}" for i in range(len(_order(captured))))
    connection.execute("drop table if exists temp.penstock_bookmark")
    connection.execute(f"create temp table penstock_bookmark({columns})")


def _log_chunk(connection: sqlite3.Connection, captured: Captured, *, is_first: bool) -> int:
    shape, order = captured.shape, _order(captured)
    table, columns = quoted(shape.table), ", ".join(order)
    marked = ", ".join(f"c{i}" for i in range(len(order)))
    later = "" if is_first else f" where ({columns}) > (select {marked} from temp.penstock_bookmark)"
    chunk = f"from {table}{later} order by {columns} limit {CHUNK}"
    values = ", ".join([shape.row_id or "null", *map(quoted, shape.columns)])
    places = ", ".join(["shape", "op", "at", "new_row_id", *(f"c{i}" for i in range(len(shape.columns)))])
    stamp = f"{captured.number}, 'refresh', julianday('now')"
    rows = connection.execute(f"insert into _penstock_log({places}) select {stamp}, {values} {chunk}").rowcount
    if rows == CHUNK:
        last = f"select {columns} from {table}{later} order by {columns} limit 1 offset {CHUNK - 1}"
        connection.execute(f"insert into temp.penstock_bookmark {last}")
        connection.execute("delete from temp.penstock_bookmark where rowid < (select max(rowid) from temp.penstock_bookmark)")
    return rows


def _order(captured: Captured) -> list[str]:
    """The columns of the order of rows, with the collations of an index."""
    shape = captured.shape
    if shape.row_id:
        return [shape.row_id]
    return [f"{quoted(name)} collate {quoted(collation)}" for name, collation in shape.uniques[0].columns]
