"""Transaction numbers for programs that write to a captured SQLite database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_IS_CAPTURED = "select 1 from sqlite_master where type = 'table' and name = '_penstock_tx'"
_CLEAR = "delete from _penstock_tx"
_NUMBER = "insert into _penstock_tx(number) select coalesce(max(seq), 0) + 1 from _penstock_log"

_inside: dict[int, int | None] = {}
"""The number of each connection inside a block, by the id of the connection."""


@contextmanager
def transaction(connection: Any) -> Iterator[int | None]:
    """A transaction whose changes share the yielded number; yields None, without further effect, if the database has no capture.

    A sqlite3 connection outside a transaction begins one, which the block commits, or rolls back on an exception. The caller ends
    a transaction that it began before, and that of a wrapper: the connection of Django, the connection or session of SQLAlchemy.
    A nested block belongs to the outer one.
    """
    raw = _raw(connection)
    if id(raw) in _inside:
        yield _inside[id(raw)]
        return
    is_mine = raw is connection and not raw.in_transaction
    cursor = sqlite3.Cursor(raw)  # ignores the cursor and row factories of the connection
    try:
        if is_mine:
            cursor.execute("begin immediate")
        _inside[id(raw)] = number = _number(raw, cursor)
        yield number
        if number is not None:
            cursor.execute(_CLEAR)
        if is_mine and raw.in_transaction:
            cursor.execute("commit")
    except BaseException:
        if raw.in_transaction and (is_mine or _inside.get(id(raw)) is not None):
            cursor.execute("rollback" if is_mine else _CLEAR)
        raise
    finally:
        _inside.pop(id(raw), None)


def _number(raw: sqlite3.Connection, cursor: sqlite3.Cursor) -> int | None:
    if not cursor.execute(_IS_CAPTURED).fetchone():
        return None
    cursor.execute(_CLEAR)  # a number that a writer left
    if not raw.in_transaction:
        raise ValueError("the connection is in autocommit: begin a transaction first")
    cursor.execute(_NUMBER)
    return cursor.lastrowid


def _raw(connection: Any) -> sqlite3.Connection:
    """The sqlite3 connection inside a session, a wrapper or a pooled connection."""
    inner = connection
    while inner is not None and not isinstance(inner, sqlite3.Connection):
        held = getattr(inner, "driver_connection", None) or getattr(inner, "connection", None)
        inner = held() if callable(held) and not isinstance(held, sqlite3.Connection) else held
    if inner is None:
        raise TypeError(f"{type(connection).__name__} is not an open connection to SQLite")
    return inner
