"""The state of capture in a database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from penstock.capture import ReaderState, Survey, TableState
from penstock.sources.sqlite import readers
from penstock.sources.sqlite.catalog import Captured, Role
from penstock.sources.sqlite.database import opened, transaction
from penstock.sources.sqlite.heal import lacks
from penstock.sources.sqlite.installation import Installation, begun, has_catalogue
from penstock.sources.sqlite.schema import Schema, matcher, read_schema
from penstock.sources.sqlite.shape import refusal

_JULIAN_1970 = 2440587.5


def survey(path: str, tables: str | None = None) -> Survey:
    """Tables, log and readers, in one state of the database."""
    with opened(path) as connection, transaction(connection):
        schema, work = read_schema(connection), begun(connection) if has_catalogue(connection) else None
        [(journal_mode,)] = connection.execute("pragma journal_mode")
        first, head = connection.execute("select min(seq), max(seq) from _penstock_log").fetchone() if work else (None, None)
        found = _uncaptured(schema) | ({one.table: one for one in _captured(work)} if work else {})
        return Survey(
            database=path,
            enabled=work is not None,
            journal_mode=journal_mode,
            incarnation=work.catalogue.incarnation if work else None,
            first=first,
            head=head,
            tables=tuple(found[name] for name in sorted(found) if matcher("tables", tables)(name)),
            readers=_readers(connection) if work else (),
        )


def _uncaptured(schema: Schema) -> dict[str, TableState]:
    reasons = {**schema.others, **{name: refusal(facts) for name, facts in schema.tables.items()}}
    return {name: TableState(name, "not capturable" if why else "not captured", why or "") for name, why in reasons.items()}


def _captured(work: Installation) -> Iterator[TableState]:
    noted = "select lineage, count(*) from (select distinct * from _penstock_touched) group by lineage"
    touched = dict(work.connection.execute(noted))
    for captured in work.catalogue.live:
        state, why = state_of(work, captured, touched.get(captured.lineage, 0))
        yield TableState(captured.shape.table, state, why, work.catalogue.last(captured.lineage).shape.left_out)


def state_of(work: Installation, captured: Captured, touched: int) -> tuple[str, str]:
    """The state of a captured table, and the reason."""
    if captured.role is Role.WATCH:
        return "suspended", f"{touched} rows touched meanwhile"
    if captured.is_suspended:
        return "suspended", "resume was interrupted: penstock capture resume"
    wrong = [breach.what for breach in work.breaches(captured)]
    if lacks(work, captured.lineage, "gap"):
        wrong.append("lacks changes in the log: penstock capture repair")
    return "broken" if wrong else "captured", "; ".join(wrong)


def _readers(connection: sqlite3.Connection) -> tuple[ReaderState, ...]:
    found = []
    for one, seen in zip(readers.load(connection), readers.seen(connection), strict=True):
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=one.noted_at - _JULIAN_1970)
        noted_at = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        state = "released" if seen.is_released else "gone" if seen.is_gone else "at work"
        found.append(ReaderState(*one.name, one.position, noted_at, seen.kept, state, one.owner))
    return tuple(found)
