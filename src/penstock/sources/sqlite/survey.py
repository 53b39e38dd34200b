"""What there is to say about the capture of a database."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock import source
from penstock.sources.sqlite import catalog, readers
from penstock.sources.sqlite.catalog import Captured, Catalogue, Role
from penstock.sources.sqlite.database import opened, transaction
from penstock.sources.sqlite.installation import has_catalogue
from penstock.sources.sqlite.schema import Schema, read_schema, selector
from penstock.sources.sqlite.shape import refusal

_JULIAN_1970 = 2440587.5


@dataclass(frozen=True, slots=True)
class TableState:
    """One table: captured, suspended, broken, not captured, or not capturable, and why; `left_out` are columns not captured."""

    table: str
    state: str
    why: str = ""
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reader:
    """A pipeline that is registered; the log is kept from the lowest position of them all, save those that were released.

    `kept`: changes that are kept for it alone. `state`: at work, gone, or released.
    """

    pipeline: str
    lane: str
    position: int
    noted_at: str
    kept: int
    state: str


@dataclass(frozen=True, slots=True)
class Survey:
    """A database under capture, or not."""

    database: str
    enabled: bool
    journal_mode: str
    incarnation: str | None
    first: int | None
    head: int | None
    tables: tuple[TableState, ...]
    readers: tuple[Reader, ...]

    @property
    def is_broken(self) -> bool:
        """Whether changes may be missing from the log."""
        return any(table.state == "broken" for table in self.tables)

    def facts(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return asdict(self)


def survey(path: str, tables: str | None = None) -> Survey:
    """Look at tables, log and readers in one state of the database."""
    with opened(path) as connection, transaction(connection):
        schema, enabled = read_schema(connection), has_catalogue(connection)
        [(journal_mode,)] = connection.execute("pragma journal_mode")
        catalogue = catalog.load(connection) if enabled else Catalogue("", {})
        touched = _touched(connection) if enabled else {}
        first, head = connection.execute("select min(seq), max(seq) from _penstock_log").fetchone() if enabled else (None, None)
        return Survey(
            database=path,
            enabled=enabled,
            journal_mode=journal_mode,
            incarnation=catalogue.incarnation or None,
            first=first,
            head=head,
            tables=tuple(table for table in _tables(catalogue, schema, touched) if selector(tables)(table.table)),
            readers=_readers(connection) if enabled else (),
        )


def _tables(catalogue: Catalogue, schema: Schema, touched: Mapping[int, int]) -> list[TableState]:
    found = {name: TableState(name, "not capturable", why) for name, why in schema.others.items()}
    for name, facts in schema.tables.items():
        reason = refusal(facts)
        found[name] = TableState(name, "not capturable", reason) if reason else TableState(name, "not captured")
    for captured in catalogue.live:
        found[captured.shape.table] = _state(captured, catalogue, schema, touched)
    return [found[name] for name in sorted(found)]


def _state(captured: Captured, catalogue: Catalogue, schema: Schema, touched: Mapping[int, int]) -> TableState:
    table, left_out = captured.shape.table, catalogue.last(captured.lineage).shape.left_out
    if captured.role is Role.WATCH:
        return TableState(table, "suspended", f"{touched.get(captured.lineage, 0)} rows touched meanwhile", left_out)
    if captured.is_suspended:
        return TableState(table, "suspended", "resuming it was not finished: penstock capture resume", left_out)
    broken = "; ".join(breach.what for breach in catalog.breaches(captured, schema))
    return TableState(table, "broken" if broken else "captured", broken, left_out)


def _touched(connection: sqlite3.Connection) -> dict[int, int]:
    return dict(connection.execute("select lineage, count(*) from (select distinct * from _penstock_touched) group by lineage"))


def _readers(connection: sqlite3.Connection) -> tuple[Reader, ...]:
    known = zip(readers.load(connection), readers.seen(connection), strict=True)
    return tuple(Reader(*one.name, one.position, _instant(one.noted_at), seen.kept, _life(seen)) for one, seen in known)


def _life(seen: source.Reader) -> str:
    return "released" if seen.is_released else "gone" if seen.is_gone else "at work"


def _instant(julian: float) -> str:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=julian - _JULIAN_1970)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
