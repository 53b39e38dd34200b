"""Which database a table is in."""

from __future__ import annotations

from functools import partial

from penstock.sources.outbox.mark import postgres
from penstock.sources.outbox.mark.table import Opened
from penstock.sources.outbox.naming import Names

_POSTGRES = ("postgresql://", "postgres://")


def named(database: str, table: str) -> Names:
    """The names of a table. Raises ValueError for a database that is none of those."""
    if not database.startswith(_POSTGRES):
        raise ValueError("source.database must be a DSN: postgresql://user@host/database")
    return Names(table)


def opened(database: str, table: str) -> Opened:
    """How to reach a table."""
    return partial(postgres.opened, database, named(database, table))


def create(database: str, table: str) -> bool:
    """Make the table in the layout of goharvest; False if it was there."""
    return postgres.create(database, named(database, table))


def statements(database: str, table: str) -> list[str]:
    """The SQL of that."""
    return postgres.statements(named(database, table))
