"""For programs that write to a captured SQLite database: the changes of one transaction under one number."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_IS_CAPTURED = "select 1 from sqlite_master where type = 'table' and name = '_penstock_tx'"
_CLEAR = "delete from _penstock_tx"
_NUMBER = "insert into _penstock_tx(number) select coalesce(max(seq), 0) + 1 from _penstock_log"

_inside: dict[int, int | None] = {}
"""The connections that are inside a block now, by their id, and the number of each."""


@contextmanager
def transaction(connection: Any) -> Iterator[int | None]:
    """One transaction whose changes share a number, which is given; None and nothing more where the database has no capture.

    A sqlite3 connection that is in no transaction begins one, which is committed at the end, or rolled back by an exception. A
    transaction that was begun outside stays with whoever began it; so does that of a wrapper: Django's connection, SQLAlchemy's
    connection or session. A block inside a block belongs to the outer one.
    """
    raw = _raw(connection)
    if id(raw) in _inside:
        yield _inside[id(raw)]
        return
    is_mine = raw is connection and not raw.in_transaction
    cursor = sqlite3.Cursor(raw)  # whatever cursors and rows the connection is set to make
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
    cursor.execute(_CLEAR)  # what a writer has left that forgot to
    if not raw.in_transaction:
        raise ValueError("the connection is in autocommit: begin a transaction first")
    cursor.execute(_NUMBER)
    return cursor.lastrowid


def _raw(connection: Any) -> sqlite3.Connection:
    """The sqlite3 connection inside: of a session its connection, of a pooled one the driver's."""
    inner = connection
    while inner is not None and not isinstance(inner, sqlite3.Connection):
        held = getattr(inner, "driver_connection", None) or getattr(inner, "connection", None)
        inner = held() if callable(held) and not isinstance(held, sqlite3.Connection) else held
    if inner is None:
        raise TypeError(f"{type(connection).__name__} is no connection to SQLite, or not open yet")
    return inner
