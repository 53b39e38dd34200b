"""Rows up to a limit of memory: rows have any size, which is known only after they are read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.sources.sqlite.image import Row

CHUNK_BYTES = 1 << 20  # the size of one batch, about


@contextmanager
def small_values(connection: sqlite3.Connection, most: int) -> Iterator[None]:
    """SQLite raises DataError for a larger value. This is free, while a sum of lengths takes as long as reading."""
    before = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most)
    try:
        yield
    finally:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, before)


def limited(rows: Iterator[Row], most: int, most_bytes: int, least: int = 1) -> tuple[list[Row], bool]:
    """The next rows, up to a number of rows and bytes, and whether a limit was reached: there may be more."""
    taken: list[Row] = []
    size = 0
    for row in rows:
        taken.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(taken) >= most or (size >= most_bytes and len(taken) >= least):
            return taken, True
    return taken, False
