"""Connections to the database of an outbox; its errors become PenstockErrors without the secrets of the DSN."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigInvalid, OutboxMissing, OutboxUnfit, SourceUnavailable
from penstock.sources.outbox.naming import Names
from penstock.text.dsn import scrubbed, shown

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]
else:  # psycopg is an extra, and is imported when it is needed
    Connection = Any

_DEFAULTS = {
    "application_name": "penstock",
    "connect_timeout": 5,
    "target_session_attrs": "read-write",
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""Options of a connection that the DSN does not set."""

# The length of the table changes too fast for the statistics of the planner: index scans are always right.
_SESSION = "set enable_seqscan = off; set enable_bitmapscan = off; set jit = off; set timezone = 'UTC'"


def driver() -> Any:
    """The module psycopg. Raises ConfigInvalid, which names the extra that installs it."""
    try:
        import psycopg
    except ImportError as error:
        raise ConfigInvalid("an outbox in Postgres needs psycopg 3", "pip install 'penstock[postgres]'") from error
    return psycopg


@contextmanager
def connected(dsn: str, names: Names, *, anew: bool = False) -> Iterator[Connection]:
    """A connection that commits each statement by itself; errors of the database become PenstockErrors.

    One is kept for the next caller, since a handshake takes longer than most statements. Anew: one for this caller alone.
    """
    with _translated(dsn, names):
        connection = (None if anew else _kept(dsn)) or _connect(dsn)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if anew or _idle.setdefault((os.getpid(), dsn), connection) is not connection:
            connection.close()


def _connect(dsn: str) -> Any:
    psycopg = driver()
    given = {name: value for name, value in _DEFAULTS.items() if name not in dsn}
    try:
        connection = psycopg.connect(dsn, autocommit=True, **given)
    except psycopg.ProgrammingError as error:
        raise ConfigInvalid(f"{shown(dsn)} is not a DSN of Postgres: {_said(error, dsn)}", "see docs/outbox.md") from error
    connection.execute(_SESSION)
    return connection


def _kept(dsn: str) -> Any:
    """The kept connection, if it still works; never one of the process from which this one was forked."""
    connection = _idle.pop((os.getpid(), dsn), None)
    try:
        if connection:
            connection.execute("select 1")
    except driver().Error:
        connection.close()
        return None
    return connection


_idle: dict[tuple[int, str], Any] = {}


@atexit.register
def _close_idle() -> None:
    while _idle:
        (process, _), connection = _idle.popitem()
        if process == os.getpid():
            connection.close()


@contextmanager
def _translated(dsn: str, names: Names) -> Iterator[None]:
    psycopg = driver()
    refused = psycopg.errors
    try:
        yield
    except (refused.UndefinedTable, refused.InvalidSchemaName) as error:
        raise OutboxMissing(f"{shown(dsn)} has no outbox {names.table}: {_said(error, dsn)}", names.init()) from error
    except (refused.UndefinedColumn, refused.UndefinedFunction, refused.DatatypeMismatch) as error:
        raise OutboxUnfit(f"{names.table} in {shown(dsn)} is no outbox: {_said(error, dsn)}", names.init()) from error
    except refused.InsufficientPrivilege as error:
        raise OutboxUnfit(f"{shown(dsn)}: {_said(error, dsn)}", f"grant this role the rights that {names.page} lists") from error
    except (psycopg.OperationalError, psycopg.InterfaceError, refused.ReadOnlySqlTransaction) as error:
        raise SourceUnavailable(f"{shown(dsn)}: {_said(error, dsn)}", "check that Postgres runs and can be reached") from error


def _said(error: Exception, dsn: str) -> str:
    return scrubbed(str(error) or type(error).__name__, dsn)
