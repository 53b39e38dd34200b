"""Rescanning a table of which changes are missing: all its rows follow in the log as `refresh`, between two marks.

The marks are schema events that say `"rescan": "begin"` and `"rescan": "end"`; the end names the position of its beginning. A row
that was not told between the two is no more. Writers go on meanwhile: a chunk of rows takes one short transaction.
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
from penstock.sources.sqlite.heal import has_gap, record, renew
from penstock.sources.sqlite.installation import Installation, begun, refuse
from penstock.sources.sqlite.shape import has_fixed_row_ids
from penstock.sources.sqlite.triggers import TOUCHED, quoted

DROPPED = "was dropped (if it was renamed: capture enable, then capture repair with its new name)"
CHUNK = 2000  # rows told in one transaction: some milliseconds
_PATIENCE = 10.0  # seconds to wait for writers
_PAUSE = 0.002  # seconds left to writers between two transactions

"""Hears the table, how many rows were told, and of how many."""


def silent(table: str, done: int, of: int) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class Rescan:
    """A table whose rescan has begun."""

    captured: Captured
    begin: int


def repair(path: str, tables: str | None = None, progress: Progress = silent) -> Report:
    """Renew the capture of tables and tell all their rows again; without a choice of those whose changes are missing."""
    return told_again(path, lambda work: _begin(work, tables), "repaired", progress)


def told_again(path: str, opening: Callable[[Installation], list[Rescan]], done: str, progress: Progress) -> Report:
    """Open rescans in one transaction, and tell the rows of each behind it."""
    with opened(path, "rw", _PATIENCE) as connection:
        report = Report()
        with transaction(connection, "immediate"):
            rescans, version = opening(begun(connection, report)), schema_version(connection)
        for rescan in rescans:
            told = scan(connection, rescan, version, progress)
            report.tables[rescan.captured.shape.table] = f"{done}: all {told} rows told again"
        return report


def _begin(work: Installation, tables: str | None) -> list[Rescan]:
    meant = work.meant(tables)
    if tables is not None and not meant:
        raise ConfigInvalid(f"no table that matches {tables!r} is captured", "see: penstock capture status DATABASE")
    rescans = [_open(work, one, is_asked=tables is not None) for one in meant]
    return [rescan for rescan in rescans if rescan]


def _open(work: Installation, captured: Captured, *, is_asked: bool) -> Rescan | None:
    """Renew capture where that is needed, and begin a rescan unless it is not."""
    table, facts, found = work.name(captured), work.facts(captured), work.breaches(captured)
    if captured.is_suspended:
        work.report.tables[table] = "suspended: penstock capture resume"
        return None
    if not (is_asked or has_gap(work, captured.lineage) or any(breach.loses(None) for breach in found)):
        return None
    if facts:
        refuse({table: facts})
    fresh = renew(work, captured, found) if found else captured
    if fresh is None:
        work.report.tables[table] = DROPPED
        return None
    return begin(work, fresh)


def begin(work: Installation, captured: Captured) -> Rescan:
    """The first mark. What was noted while suspended is told with everything else."""
    work.tell(captured, None, captured.shape, rescan="begin")
    work.run(f"delete from {TOUCHED} where lineage = {captured.lineage}")
    return Rescan(captured, work.head())


def scan(connection: sqlite3.Connection, rescan: Rescan, version: int, progress: Progress) -> int:
    """Tell all rows, then set the second mark; answers how many rows there were."""
    captured = rescan.captured
    [(total,)] = connection.execute(f"select count(*) from {quoted(captured.shape.table)}")
    _make_bookmark(connection, captured)
    done, is_over = 0, False
    while not is_over:
        with transaction(connection, "immediate"):
            version = _still(connection, captured, version)
            told = _tell_chunk(connection, captured, is_first=done == 0)
            done, is_over = done + told, told < CHUNK
            if is_over:
                _end(begun(connection), rescan)
        progress(captured.shape.table, done, max(done, total))
        time.sleep(_PAUSE)
    return done


def _still(connection: sqlite3.Connection, captured: Captured, version: int) -> int:
    """The schema's version now; raises CaptureBroken if what has changed since then concerns this table."""
    now = schema_version(connection)
    if now == version:
        return now
    work = begun(connection)
    facts = work.facts(captured)
    is_live = captured.number in {one.number for one in work.catalogue.live}
    has_places = facts is not None and (facts.without_rowid or has_fixed_row_ids(facts))  # VACUUM moves the version too
    if not is_live or not has_places or work.breaches(captured):
        raise CaptureBroken(f"the schema changed while {captured.shape.table} was scanned", "run the same command again")
    return now


def _end(work: Installation, rescan: Rescan) -> None:
    captured = rescan.captured
    work.tell(captured, None, captured.shape, rescan="end", since=rescan.begin)
    work.run(f"update _penstock_shape set is_suspended = 0 where number = {captured.number}")
    record(work, captured.lineage, whole_upto=rescan.begin)


def _make_bookmark(connection: sqlite3.Connection, captured: Captured) -> None:
    """A temporary table for the last row that was told: values stay what they are, also text that is not UTF-8."""
    columns = ", ".join(f"c{i}" for i in range(len(_order(captured))))
    connection.execute("drop table if exists temp.penstock_bookmark")
    connection.execute(f"create temp table penstock_bookmark({columns})")


def _tell_chunk(connection: sqlite3.Connection, captured: Captured, *, is_first: bool) -> int:
    shape, order = captured.shape, _order(captured)
    table, columns = quoted(shape.table), ", ".join(order)
    marked = ", ".join(f"c{i}" for i in range(len(order)))
    behind = "" if is_first else f" where ({columns}) > (select {marked} from temp.penstock_bookmark)"
    chunk = f"from {table}{behind} order by {columns} limit {CHUNK}"
    values = ", ".join([shape.row_id or "null", *map(quoted, shape.columns)])
    places = ", ".join(["shape", "op", "at", "new_row_id", *(f"c{i}" for i in range(len(shape.columns)))])
    stamp = f"{captured.number}, 'refresh', julianday('now')"
    told = connection.execute(f"insert into _penstock_log({places}) select {stamp}, {values} {chunk}").rowcount
    if told == CHUNK:
        last = f"select {columns} from {table}{behind} order by {columns} limit 1 offset {CHUNK - 1}"
        connection.execute(f"insert into temp.penstock_bookmark {last}")
        connection.execute("delete from temp.penstock_bookmark where rowid < (select max(rowid) from temp.penstock_bookmark)")
    return told


def _order(captured: Captured) -> list[str]:
    """By what rows are ordered, in the way of an index."""
    shape = captured.shape
    if shape.row_id:
        return [shape.row_id]
    return [f"{quoted(name)} collate {quoted(collation)}" for name, collation in shape.uniques[0].columns]
