"""As many rows as fit into some memory: rows may be of any size, and are counted only after they were read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.sources.sqlite.image import Row

CHUNK_BYTES = 1 << 20
"""About so much is given at a time."""


@contextmanager
def small_values(connection: sqlite3.Connection, most: int) -> Iterator[None]:
    """SQLite reads no larger value, and raises DataError: that costs nothing, while to add up lengths takes as long as to read."""
    before = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most)
    try:
        yield
    finally:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, before)


def portion(rows: Iterator[Row], most: int, most_bytes: int, least: int = 1) -> list[Row]:
    """The next rows, up to a number of rows and of bytes."""
    return limited(rows, most, most_bytes, least)[0]


def limited(rows: Iterator[Row], most: int, most_bytes: int, least: int = 1) -> tuple[list[Row], bool]:
    """The same, and whether a limit was reached, so that there may be more."""
    taken: list[Row] = []
    size = 0
    for row in rows:
        taken.append(row)
        size += weight(row)
        if len(taken) >= most or (size >= most_bytes and len(taken) >= least):
            return taken, True
    return taken, False


def weight(row: Row) -> int:
    """The bytes of the texts and blobs of a row, about."""
    return sum(len(value) for value in row if isinstance(value, str | bytes))
