"""Opening the captured database without ever creating it, and saying in our words what went wrong with it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from penstock.errors import CaptureMissing, LogDamaged, PenstockError, SourceUnavailable

_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL}
_UNWRITABLE = {
    sqlite3.SQLITE_FULL: "make room on its disk",
    sqlite3.SQLITE_READONLY: "let this user write to the file and its folder: how far pipelines have come is noted there",
}
_SEE = "see that its disk has room, that this user can open the file and its folder, and that no program keeps it locked"
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def enable_remedy(path: str) -> str:
    """What to type to get capture."""
    return f"run: penstock capture enable {path}"


def repair_remedy(path: str, table: str) -> str:
    """What to type where changes are missing."""
    return f"run: penstock capture repair {path} {table}"


@contextmanager
def opened(path: str, mode: Literal["ro", "rw"] = "ro", patience: float = 1.0) -> Iterator[sqlite3.Connection]:
    """A connection in autocommit; errors of SQLite inside the block come out as errors of ours."""
    with _translated(path):
        uri = f"file:{quote(os.path.abspath(path))}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=patience, isolation_level=None, check_same_thread=False)
        try:
            yield connection
        finally:
            connection.close()


@contextmanager
def transaction(
    connection: sqlite3.Connection, kind: Literal["deferred", "immediate"] = "deferred", *, keeps: bool = True
) -> Iterator[None]:
    """All or nothing, or nothing in any case; a deferred one that only reads sees one state of the database."""
    connection.execute(f"begin {kind}")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite itself takes one back that finds the disk full
            connection.execute("rollback")
        raise
    connection.execute("commit" if keeps else "rollback")


def is_busy(error: PenstockError) -> bool:
    """Whether it says no more than that somebody else writes just now."""
    return isinstance(error.__cause__, sqlite3.DatabaseError) and _primary(error.__cause__) in _BUSY


def data_version(connection: sqlite3.Connection) -> int:
    """Moves when another connection has committed something."""
    return _number(connection, "pragma data_version")


def schema_version(connection: sqlite3.Connection) -> int:
    """Moves with every change of schema, and with VACUUM, which renumbers rows."""
    return _number(connection, "pragma schema_version")


def _number(connection: sqlite3.Connection, sql: str) -> int:
    [(number,)] = connection.execute(sql)
    return int(number)


def path_of(connection: sqlite3.Connection) -> str:
    """The file of this database."""
    return str(connection.execute("select file from pragma_database_list where name = 'main'").fetchone()[0])


Identity = tuple[int, int, int | None]


def identity(path: str) -> Identity | None:
    """Which file stands under this name now, and which WAL beside it; None if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    try:
        return found.st_dev, found.st_ino, os.stat(path + "-wal").st_ino
    except FileNotFoundError:
        return found.st_dev, found.st_ino, None


def is_replaced(was: Identity | None, now: Identity | None) -> bool:
    """Whether a connection opened to `was` reads another file than the one that stands there now.

    SQLite never takes away a WAL that somebody has open, so one that is gone or another was taken away with its database.
    """
    return was is None or now is None or was[:2] != now[:2] or was[2] not in (None, now[2])


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _in_our_words(path, error) from error


def _in_our_words(path: str, error: sqlite3.DatabaseError) -> PenstockError | sqlite3.DatabaseError:
    primary = _primary(error)
    if not Path(path).is_file():
        return CaptureMissing(f"there is no database {path}", "check the path, then " + enable_remedy(path))
    if "no such table: _penstock_" in str(error):
        return CaptureMissing(f"{path} has no capture", enable_remedy(path))
    if primary in _PASSING:
        return SourceUnavailable(f"{path}: {error}", _SEE)
    if primary in _UNWRITABLE:
        return SourceUnavailable(f"{path}: {error}", _UNWRITABLE[primary])
    if primary in _DAMAGED:
        return LogDamaged(f"{path}: {error}", "restore the database from a backup, then: penstock run FILE --from POSITION")
    return error


def _primary(error: sqlite3.DatabaseError) -> int:
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF
