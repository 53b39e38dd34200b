"""Opening the captured database, which is never created; errors of SQLite become PenstockErrors."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from penstock.errors import CaptureMissing, LogDamaged, PenstockError, SourceUnavailable

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_SEE = "check that its disk has room, that this user can open the file and its folder, and that no program keeps it locked"
_UNAVAILABLE = dict.fromkeys({*_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL}, _SEE) | {
    sqlite3.SQLITE_FULL: "make room on its disk",
    sqlite3.SQLITE_READONLY: "allow this user to write to the file and its folder: the progress of pipelines is recorded there",
}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def enable_remedy(path: str) -> str:
    """The command that enables capture."""
    return f"run: penstock capture enable {path}"


def repair_remedy(path: str, table: str) -> str:
    """The command that repairs a table whose changes are missing."""
    return f"run: penstock capture repair {path} {table}"


@contextmanager
def opened(path: str, mode: Literal["ro", "rw"] = "ro", patience: float = 1.0) -> Iterator[sqlite3.Connection]:
    """A connection in autocommit; errors of SQLite inside the block become PenstockErrors."""
    try:
        uri = f"file:{quote(os.path.abspath(path))}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=patience, isolation_level=None, check_same_thread=False)
        try:
            yield connection
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise _translated(path, error) from error


@contextmanager
def transaction(
    connection: sqlite3.Connection, kind: Literal["deferred", "immediate"] = "deferred", *, keeps: bool = True
) -> Iterator[None]:
    """A transaction, rolled back on an error and unless it `keeps`; a deferred one that only reads sees one state."""
    connection.execute(f"begin {kind}")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite rolls back by itself when the disk is full
            connection.execute("rollback")
        raise
    connection.execute("commit" if keeps else "rollback")


def is_busy(error: PenstockError) -> bool:
    """Whether the error means only that another process is writing."""
    return isinstance(error.__cause__, sqlite3.DatabaseError) and _primary(error.__cause__) in _BUSY


def data_version(connection: sqlite3.Connection) -> int:
    """A number that changes when another connection has committed."""
    [(number,)] = connection.execute("pragma data_version")
    return int(number)


def schema_version(connection: sqlite3.Connection) -> int:
    """A number that changes with every change of schema, and with VACUUM, which renumbers rows."""
    [(number,)] = connection.execute("pragma schema_version")
    return int(number)


Identity = tuple[int, int, int | None]


def identity(path: str) -> Identity | None:
    """The device and inode of the file with this name, and the inode of its WAL; None if there is no file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    try:
        return found.st_dev, found.st_ino, os.stat(path + "-wal").st_ino
    except FileNotFoundError:
        return found.st_dev, found.st_ino, None


def is_replaced(was: Identity | None, now: Identity | None) -> bool:
    """Whether a file was replaced: SQLite never removes a WAL that a process has open, so another WAL has another database."""
    return was is None or now is None or was[:2] != now[:2] or was[2] not in (None, now[2])


def _translated(path: str, error: sqlite3.DatabaseError) -> PenstockError | sqlite3.DatabaseError:
    primary = _primary(error)
    if not Path(path).is_file():
        return CaptureMissing(f"there is no database {path}", "check the path, then " + enable_remedy(path))
    if "no such table: _penstock_" in str(error):
        return CaptureMissing(f"{path} has no capture", enable_remedy(path))
    if primary in _UNAVAILABLE:
        return SourceUnavailable(f"{path}: {error}", _UNAVAILABLE[primary])
    if primary in _DAMAGED:
        return LogDamaged(f"{path}: {error}", "restore the database from a backup, then: penstock run FILE --from POSITION")
    return error


def _primary(error: sqlite3.DatabaseError) -> int:
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF
