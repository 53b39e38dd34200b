"""Writers of the same rows into SQLite and Postgres; each row carries the time at which its transaction was sent off."""

from __future__ import annotations

import sqlite3
import time
from typing import Any, Protocol

NOTE = "note " * 42


def rows(first: int, count: int) -> list[tuple[Any, ...]]:
    """Of about 300 bytes each as JSON."""
    at = f"{time.time():.6f}"
    return [(n, f"customer {n % 997}", "open", n * 1.25, n % 9, NOTE, at) for n in range(first, first + count)]


class Writer(Protocol):
    """Writes one transaction at a time."""

    def write(self, first: int, count: int) -> None: ...

    def close(self) -> None: ...


class SQLiteWriter:
    """Into a captured database; the triggers run in here."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def write(self, first: int, count: int) -> None:
        self._connection.execute("begin")
        self._connection.executemany("insert into orders values (?,?,?,?,?,?,?)", rows(first, count))
        self._connection.execute("commit")

    def close(self) -> None:
        self._connection.close()


class PostgresWriter:
    """A transaction is one statement, which is the fastest."""

    TABLE = "create table orders(id bigint primary key, customer text, status text, total float8, quantity int, note text, at text)"

    def __init__(self, place: str) -> None:
        import psycopg

        self.connection = psycopg.connect(place, autocommit=True)
        self.connection.execute(self.TABLE)

    def write(self, first: int, count: int) -> None:
        values = ",".join(["(%s,%s,%s,%s,%s,%s,%s)"] * count)
        some = [value for row in rows(first, count) for value in row]
        self.connection.execute(f"insert into orders values {values}", some, prepare=True)

    def close(self) -> None:
        self.connection.close()


def paced(writer: Writer, first: int, count: int, rate: float, size: int) -> None:
    """Write `count` changes at a rate, in transactions of `size`; one who is late hurries."""
    began = time.time()
    for done in range(0, count, size):
        if (ahead := began + done / rate - time.time()) > 0:
            time.sleep(ahead)
        writer.write(first + done, size)
