"""Whether a state file has its content, and whether it can be written: open connections may not notice a loss."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from penstock.coordinators.sqlite.store import APPLICATION, StateStore, translated
from penstock.errors import StateInvalid, StateUnavailable

_TABLES = ("terms", "watermarks", "standbys")
_RESTORE = "stop all processes that use it, then restore it from a backup, or name another file under `state`"


class Condition:
    """The condition of one state file, for a process that has it open."""

    def __init__(self, path: Path) -> None:
        self._path, self._size = path, 0

    def examine(self) -> None:
        """Check the file like a process that opens it now. Raises StateInvalid, StateUnavailable."""
        size = _size(self._path)
        with translated(self._path):
            if _application(self._path) not in (0, APPLICATION):  # 0: all writes are still in the journal
                raise StateInvalid(f"{self._path} was overwritten with another database", _RESTORE)
        with closing(StateStore(self._path, writes=False)) as store:
            for table in _TABLES:
                store.rows(f"select * from {table}")
            if size < self._size:  # after a truncation, or VACUUM
                [(result,)] = store.rows("pragma quick_check(1)")
                if result != "ok":
                    raise StateInvalid(f"{self._path} was truncated: {result}", _RESTORE)
        self._size = size


def _size(path: Path) -> int:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise StateUnavailable(f"cannot use the state file {path}: {error.strerror}") from error
    if not size:
        raise StateInvalid(f"{path} is empty: its content was removed while it was in use", _RESTORE)
    return size


def _application(path: Path) -> int:
    """The application id on the first page, without the journal. Only SQLite can close the file and keep its locks."""
    place = f"file:{quote(str(path))}?mode=ro&immutable=1"
    with closing(sqlite3.connect(place, uri=True, isolation_level=None)) as connection:
        connection.execute("pragma writable_schema = on")  # a checkpoint that is under way writes this page before others
        return int(connection.execute("pragma application_id").fetchone()[0])


def silent(store: StateStore, who: str, beat_at: float, ttl: float) -> Mapping[str, str] | None:
    """The error of a leader that lives and has not renewed its term, by the wall clock, for display."""
    age = time.time() - beat_at
    if age <= ttl:
        return None
    fact = f"{who} and has not renewed its term for {age:.0f} s: {_obstacle(store)}"
    return StateUnavailable(fact, "free space on the disk of the state file, and check that the process is not stopped").facts()


def _obstacle(store: StateStore) -> str:
    """The reason why the file cannot be written, found by a transaction without lasting effect."""
    try:
        if os.access(store.path, os.W_OK):
            with store.atomic(flushes=False):
                store.write("insert or replace into standbys values ('', '', 0)")  # SQLite writes no page without a change
                store.write("delete from standbys where pipeline = '' and seat = ''")
    except StateUnavailable as error:
        return error.message
    return f"the process is stopped, or cannot write the state file {store.path}"
