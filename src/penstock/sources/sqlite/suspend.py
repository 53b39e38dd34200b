"""Suspending capture for a migration, and resuming it afterwards.

While suspended, light triggers, which permit ALTER TABLE, record the keys of touched rows. Pipelines continue with other tables;
the changes of suspended tables follow when capture is resumed.
"""

from __future__ import annotations

import json

from penstock.capture import Progress, Report
from penstock.sources.sqlite import catalog
from penstock.sources.sqlite.catalog import Captured, Role
from penstock.sources.sqlite.database import opened, transaction
from penstock.sources.sqlite.heal import lacks, log_gone, log_shape, refresh
from penstock.sources.sqlite.installation import Installation, begun, refuse
from penstock.sources.sqlite.rescan import DROPPED, Rescan, begin, rescanned, silent
from penstock.sources.sqlite.shape import Shape, TableFacts, refusal, shape_of
from penstock.sources.sqlite.triggers import TOUCHED, literal

_TABLES = "tables when suspended: "
_PATIENCE = 10.0  # seconds to wait for writers


def suspend(path: str, tables: str | None = None) -> Report:
    """Replace the triggers of capture by light triggers."""
    with opened(path, "rw", _PATIENCE) as connection, transaction(connection, "immediate"):
        work = begun(connection)
        for captured in work.chosen(tables):
            work.report.tables[work.name(captured)] = _suspend(work, captured)
        return work.report


def resume(path: str, tables: str | None = None, progress: Progress = silent) -> Report:
    """Capture again, and log the touched rows; all rows of a table, if the touched ones are unknown."""

    def opening(work: Installation) -> list[Rescan]:
        return [rescan for one in work.chosen(tables) if one.is_suspended and (rescan := _resume(work, one))]

    return rescanned(path, opening, "resumed", progress)


def _suspend(work: Installation, captured: Captured) -> str:
    if captured.is_suspended:
        return "suspended already"
    facts, lost = work.facts(captured), [breach.what for breach in work.breaches(captured) if breach.loses(None)]
    work.release(captured)
    if facts is None:
        log_gone(work, captured)
        return DROPPED
    for what in lost:
        work.gap(captured, what)
    watched = work.watch(facts, captured.shape.choice, captured.lineage)
    work.run(f"insert into _penstock_meta values('{_TABLES}{watched.number}', {literal(json.dumps(list(work.schema.tables)))})")
    return "suspended"


def _resume(work: Installation, captured: Captured) -> Rescan | None:
    facts = work.facts(captured) or _heir(work, captured)
    work.run(f"delete from _penstock_meta where name = '{_TABLES}{captured.number}'")
    if facts is None:
        work.release(captured)
        log_gone(work, captured)
        work.report.tables[captured.shape.table] = DROPPED
        return None
    table = facts.table
    refuse({table: facts})
    work.release(captured)
    fresh = work.capture(facts, captured.shape.choice, captured.lineage, is_suspended=True)
    if not (_knows_all(work, captured, fresh.shape) and _is_clear(work.catalogue.last(captured.lineage).shape, fresh.shape, facts)):
        log_shape(work, fresh)
        return begin(work, fresh)
    log_shape(work, fresh, facts)
    touched = refresh(work, fresh)
    work.run(f"update _penstock_shape set is_suspended = 0 where number = {fresh.number}")
    work.report.tables[table] = f"resumed: {touched} touched rows logged again" if touched else "resumed"
    return None


def _heir(work: Installation, captured: Captured) -> TableFacts | None:
    """The only new table with similar columns, if any: a rebuilt and renamed one. All its rows are logged, right or wrong."""
    was, noted = work.catalogue.last(captured.lineage).shape, f"'{_TABLES}{captured.number}'"
    known = work.connection.execute(f"select value from _penstock_meta where name = {noted}").fetchone()
    live = {one.shape.table for one in catalog.load(work.connection).live}  # also those that were just resumed
    taken = live.union(json.loads(known[0]) if known else work.schema.tables)
    new = {table: shape_of(facts) for table, facts in work.schema.tables.items() if table not in taken and not refusal(facts)}
    alike = [table for table, now in new.items() if now.key == was.key and 2 * len(now.names & was.names) > len(was.names)]
    return work.schema.tables[alike[0]] if len(alike) == 1 else None


def _is_clear(was: Shape, now: Shape, facts: TableFacts) -> bool:
    """Whether names alone identify columns: none vanished while others appeared, and no new column is generated."""
    appeared = now.names - was.names
    return not (appeared and was.names - now.names) and not appeared & facts.generated


def _knows_all(work: Installation, captured: Captured, now: Shape) -> bool:
    """Whether the keys of all rows that were touched while suspended are recorded."""
    was = work.catalogue.last(captured.lineage).shape
    if captured.role is not Role.WATCH or not catalog.is_sealed(captured, work.schema) or lacks(work, captured.lineage, "gap"):
        return False
    # REPLACE removes rows by an index that the light triggers do not cover
    has_writes = work.one(f"select exists(select 1 from {TOUCHED} where lineage = {captured.lineage})")
    is_watched = was.uniques == now.uniques and all(unique.is_declared for unique in now.uniques)
    return len(was.key) == len(now.key) and (is_watched or not has_writes)
