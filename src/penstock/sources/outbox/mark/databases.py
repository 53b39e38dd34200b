"""The database of a table: Postgres, MySQL or MariaDB for a DSN, SQLite for the path of a file."""

from __future__ import annotations

from functools import partial
from types import ModuleType

from penstock.sources.outbox.mark import mysql, postgres, sqlite
from penstock.sources.outbox.mark.table import Opened
from penstock.sources.outbox.naming import Names

_SCHEMES = {"postgresql://": postgres, "postgres://": postgres, **dict.fromkeys(mysql.SCHEMES, mysql)}
_KNOWN = "write postgresql://..., mysql://..., mariadb://..., or the path of a SQLite database"


def named(database: str, table: str) -> Names:
    """The names of a table. Raises ValueError for a database that is none of those."""
    names = Names(table, "goharvest")
    if _module(database) is sqlite and "." in table:
        raise ValueError(f"table is {table!r}: in SQLite a table has no schema")
    return names


def opened(database: str, table: str) -> Opened:
    """The function that opens a table."""
    return partial(_module(database).opened, database, named(database, table))


def create(database: str, table: str) -> bool:
    """Create the table in the layout of goharvest; False if it existed."""
    return bool(_module(database).create(database, named(database, table)))


def statement(database: str, table: str) -> str:
    """The SQL that creates the table."""
    return str(_module(database).statement(named(database, table)))


def _module(database: str) -> ModuleType:
    for scheme, module in _SCHEMES.items():
        if database.startswith(scheme):
            return module
    if "://" in database or not database.strip():
        raise ValueError(f"source.database names no supported database: {_KNOWN}")
    return sqlite
