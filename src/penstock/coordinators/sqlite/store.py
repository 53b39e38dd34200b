"""The state file: opening, checks, creation, upgrades, and translation of SQLite errors."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from penstock.coordinators import locks
from penstock.coordinators.sqlite import guard
from penstock.coordinators.tables import LETTERS, TERMS
from penstock.errors import PenstockError, StateInvalid, StateRefused, StateUnavailable
from penstock.files import privacy

APPLICATION = 0x50454E53  # "PENS"
VERSION = 6
PATIENCE = 2.0
"""Seconds to wait for another process's write."""

_WORDS = {"schema": "", "seat": "text", "moment": "real", "end": " without rowid"}
_NUMBER = {"number": "integer primary key autoincrement", "flag": "integer", "parked_at": "text"}
_LETTERS = LETTERS.format(**_WORDS, **_NUMBER)
_ABOUT = "create table about (identity text not null); insert into about values (lower(hex(randomblob(8))));"

SCHEMA = f"""
{_ABOUT}
{TERMS.format(**_WORDS)}
{_LETTERS}
pragma application_id = {APPLICATION};
pragma user_version = {VERSION};
"""

UPGRADES = {
    1: f"{_LETTERS} alter table watermarks add column trouble text; alter table terms add column ttl real; {_ABOUT} "
    "pragma user_version = 6;",
    2: """
    alter table watermarks add column trouble text; alter table dead_letters add column overtaken_by text; pragma user_version = 3;
    """,
    3: "alter table terms add column ttl real; pragma user_version = 4;",
    4: f"{_ABOUT} pragma user_version = 5;",
    5: """
    alter table dead_letters add column facts text; alter table dead_letters add column headers text;
    alter table dead_letters add column schema_version integer;
    update dead_letters set facts = json_patch('{}', json_object('new_row_id', new_row_id, 'old_row_id', old_row_id))
    where coalesce(new_row_id, old_row_id) is not null;
    alter table dead_letters drop column old_row_id; alter table dead_letters drop column new_row_id; pragma user_version = 6;
    """,
}
"""The statements that upgrade each version to a later one."""

_DAMAGE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_REFUSALS = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
_ODD = re.compile("no such (table|column)")
"""The error of a file that was overwritten with another database."""


class StateStore:
    """One connection to the state file."""

    schema, is_new = "", False
    now = "((julianday('now') - 2440587.5) * 86400.0)"

    def __init__(self, path: Path, *, creates: bool = False, writes: bool = True) -> None:
        self.path = path
        with locks.usable(f"use the state file {path}", _USABLE):
            is_new(path)  # SQLite would remove the journal of an empty file
            if creates and not path.exists() and path.parent.is_dir():
                with _creating(path):
                    privacy.make_file(path)
            if writes:
                guard.close_to_others(path, folder(path))
        with translated(path):
            self._connection = _connect(path, "rwc" if creates else "rw")
            try:
                if _version(self._connection, path) != VERSION:
                    _create(self._connection, path)
                self._identity, self._mode = _identity(path), ""
                self.sync("normal")
            except (sqlite3.Error, PenstockError):
                self._connection.close()
                raise

    def sync(self, mode: str) -> None:
        """When writes survive a loss of power: `full` at once, `normal` after a while or a `flush`."""
        if mode != self._mode:
            with translated(self.path):
                self._connection.execute(f"pragma synchronous = {mode}")
            self._mode = mode

    def flush(self) -> None:
        """Make all committed transactions, of any process, survive a loss of power."""
        try:
            with open(f"{self.path}-wal", "rb") as log:
                os.fsync(log.fileno())
        except FileNotFoundError:
            return  # the file itself has all of them, flushed by the checkpoint
        except OSError as error:
            raise StateUnavailable(f"cannot flush the state file {self.path}: {error.strerror}", _USABLE) from error

    def rows(self, sql: str, /, **values: object) -> Sequence[tuple[Any, ...]]:
        """The rows that a statement returns."""
        with translated(self.path):
            return self._connection.execute(sql, values).fetchall()

    def write(self, sql: str, /, **values: object) -> bool:
        """Execute one statement; False if it changed no row."""
        with translated(self.path):
            return self._connection.execute(sql, values).rowcount > 0

    @contextmanager
    def atomic(self, *, flushes: bool = True) -> Iterator[None]:
        """A transaction; with `flushes` it survives a loss of power once it is committed."""
        self.sync("full" if flushes else "normal")
        with translated(self.path):
            self._connection.execute("begin immediate")
            try:
                yield
                self._connection.execute("commit")
            except BaseException:
                if self._connection.in_transaction:  # SQLite itself rolls back when the disk is full
                    self._connection.execute("rollback")
                raise

    def is_replaced(self) -> bool:
        """Whether the path no longer names the file that this connection has open."""
        return _identity(self.path) != self._identity

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise SQLite errors as StateInvalid, StateRefused or StateUnavailable."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF in _DAMAGE or code == sqlite3.SQLITE_IOERR_SHORT_READ or _ODD.match(str(error)):
            raise StateInvalid(f"{path} cannot be read as a state file: {error}", _ANOTHER) from error
        if not isinstance(error, sqlite3.OperationalError):
            raise
        kind = StateRefused if code & 0xFF in _REFUSALS else StateUnavailable
        raise kind(f"cannot use the state file {path}: {error}", _USABLE) from error


def is_new(path: Path) -> bool:
    """Whether there is no state file yet. Raises StateInvalid for an empty file with journals: it has lost its content."""
    with locks.usable(f"use the state file {path}", _USABLE):
        # Before the size: journals appear after the content.
        had_journals = any(Path(f"{path}{end}").exists() for end in ("-wal", "-shm"))
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return True
    if had_journals and not size:
        raise StateInvalid(f"{path} is empty and has journals: it was truncated while it was in use", _ANOTHER)
    return not size


_ANOTHER = "name another file under `state`, or restore this one from a backup"
_USABLE = "check that its folder exists and is writable, that the disk has room, and that no other program locks the file"


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    place = f"file:{quote(str(path))}?mode={mode}"
    return sqlite3.connect(place, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of a state file, 0 for an empty file; raises for anything else."""
    application, version, tables = connection.execute(
        "select (select application_id from pragma_application_id), (select user_version from pragma_user_version),"
        " (select count(*) from sqlite_schema)"
    ).fetchone()
    if (application, tables) == (0, 0):
        return 0
    if application != APPLICATION:
        raise StateInvalid(f"{path} is a database, but no state file of Penstock", _ANOTHER)
    if version != VERSION and version not in UPGRADES:
        raise StateInvalid(f"{path} has version {version} and this program reads version {VERSION}", "use the newer program")
    return int(version)


def _create(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables, or upgrade those of an older version."""
    with _creating(path):
        while (version := _version(connection, path)) != VERSION:
            if version == 0:
                connection.execute("pragma journal_mode = wal")
            connection.executescript(f"begin immediate; {UPGRADES.get(version, SCHEMA)} commit;")


@contextmanager
def _creating(path: Path) -> Iterator[None]:
    """One process at a time: SQLite does not queue processes that switch a new file to WAL."""
    deadline = time.monotonic() + PATIENCE
    while not (lock := locks.seize(folder(path) / "create")):
        if time.monotonic() > deadline:
            raise StateUnavailable(f"another process has been creating {path} for {PATIENCE:g} s", _USABLE)
        time.sleep(0.005)
    with lock:
        yield


def folder(path: Path) -> Path:
    """The folder of the locks of a state file."""
    return path.with_name(path.name + "-locks")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
