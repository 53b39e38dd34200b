"""The table in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from penstock.errors import OutboxMissing, OutboxUnfit, SourceUnavailable
from penstock.sources.outbox.mark.listed import WITHIN, ListedTable
from penstock.sources.outbox.mark.table import WEIGHED
from penstock.sources.outbox.naming import Names

BUSY_SECONDS = 5.0


def statement(names: Names) -> str:
    """The SQL that creates the table where there is none. Ids are never reused, since they define the order."""
    return (
        f"create table if not exists {names.rows} (\n"
        "  id integer primary key autoincrement,\n"
        "  create_time text not null default (strftime('%Y-%m-%d %H:%M:%f', 'now')),\n"
        "  kafka_topic text not null,\n"
        "  kafka_key text not null,\n"
        "  kafka_value text,\n"
        "  kafka_header_keys text not null default '[]',\n"
        "  kafka_header_values text not null default '[]',\n"
        "  leader_id text\n"
        ")"
    )


class SqliteTable(ListedTable):
    """The table in SQLite."""

    within = WITHIN.format("?")
    made_at = "cast(round((julianday(create_time) - 2440587.5) * 86400000) as integer) * 1000"
    clock = "cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000"
    weight = " + ".join(f"coalesce(length(cast({column} as blob)), 0)" for column in WEIGHED)

    beginning = "begin immediate"

    def stamp(self, marks: Sequence[tuple[int, str]]) -> None:
        """One by one, which is fast in SQLite."""
        self._cursor.executemany(f"{self.updating} set leader_id = ? where id = ?", [(mark, row) for row, mark in marks])


def opened(path: str, names: Names, *, anew: bool = False) -> AbstractContextManager[SqliteTable]:
    """The table over a connection of its own."""
    if not Path(path).is_file():
        raise OutboxMissing(f"there is no database {path}", f"check source.database, or: {names.init(path)}")
    return _connected(path, names)


def create(path: str, names: Names) -> bool:
    """Create the table; False if it existed."""
    with _connected(path, names) as table:
        found = table.query("select 1 from sqlite_master where name = ?", (names.table,))
        table.execute("pragma journal_mode = wal")
        table.execute(statement(names))
    return not found


@contextmanager
def _connected(path: str, names: Names) -> Iterator[SqliteTable]:
    """The table over a connection whose statements commit durably, each by itself; errors of SQLite become PenstockErrors."""
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)) as connection:
            connection.execute("pragma synchronous = full")
            yield SqliteTable(connection.cursor(), names.rows)
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            raise OutboxMissing(f"{path} has no outbox {names.table}: {error}", names.init(path)) from error
        if "no such column" in str(error):
            raise OutboxUnfit(f"{names.table} in {path} is no outbox: {error}", names.init(path)) from error
        raise SourceUnavailable(
            f"{path}: {error}", "find the program that keeps the database locked, and check that the disk has room"
        ) from error
    except sqlite3.DatabaseError as error:
        raise OutboxUnfit(f"{path}: {error}", "check source.database") from error
