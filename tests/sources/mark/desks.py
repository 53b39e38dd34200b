"""A table in the layout of goharvest, of its own for every test, in each database that can hold one."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

from facts import row_id
from penstock.change import Change, from_batch
from penstock.cursor import Cursor
from penstock.errors import TermLost
from penstock.following import follow
from penstock.source import Stamp
from penstock.sources.outbox.mark import databases
from penstock.sources.outbox.mark.source import LANE, MarkSource


class Desk:
    """A table, those who write to it, and those who read it."""

    def __init__(self, database: str, connect: Callable[[], Any], mark: str = "%s") -> None:
        self.table, self.connect, self._mark = f"desk_{uuid4().hex[:8]}", connect, mark
        self.source = MarkSource(database=database, table=self.table)
        self.start = self.source.begin(LANE, "beginning")
        assert databases.create(database, self.table)
        assert not databases.create(database, self.table)

    def put(self, writer: Any, *values: str | None, key: str = "k", names: Any = (), said: Any = ()) -> None:
        """Insert without a commit."""
        arrays = [list(one) if self.is_postgres else json.dumps(list(one)) for one in (names, said)]
        cursor = writer.cursor()
        for value in values:
            cursor.execute(
                f"insert into {self.table} (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,"
                " kafka_header_values) values (current_timestamp, 'orders', " + ", ".join([self._mark] * 4) + ")",
                (key, value, *arrays),
            )
        cursor.close()

    @property
    def is_postgres(self) -> bool:
        return self.source.database.startswith("postgresql://")

    @property
    def is_sqlite(self) -> bool:
        return "://" not in self.source.database

    def allow_large_values(self) -> None:
        """As a user's own table may."""
        if not self.is_sqlite:
            change = "alter column kafka_value type text" if self.is_postgres else "modify kafka_value longtext"
            self.execute(f"alter table {{}} {change}")

    def commit(self, *values: str | None, **about: Any) -> None:
        """One transaction."""
        with closing(self.connect()) as writer:
            self.put(writer, *values, **about)
            writer.commit()

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """A statement about `{}`, which is the table."""
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(sql.replace("{}", self.table))
            found = list(cursor.fetchall()) if cursor.description else []
            connection.commit()
            return found

    def marks(self) -> dict[int, str | None]:
        return {row: str(mark) if mark else None for row, mark in self.execute("select id, leader_id from {} order by id")}

    def reader(self, epoch: int, attempt: int = 0, after: Cursor | None = None, records: int = 2000) -> Reader:
        return Reader(replace(self.source, mark_query_records=records), Stamp(epoch, attempt), after or self.start)


class Reader:
    """One attempt at reading."""

    def __init__(self, source: MarkSource, stamp: Stamp, after: Cursor) -> None:
        self._windows = follow(source, LANE, after, stamp)
        self.lease, self.cursor = source.row_lease.open(stamp), after

    def changes(self, count: int) -> list[Change]:
        """So many changes, as they come."""
        found: list[Change] = []
        while len(found) < count:
            window = next(self._windows)
            found += from_batch(window.changes)
            self.cursor = window.upto or self.cursor
        assert len(found) == count
        return found

    def look(self) -> list[Change]:
        """What the next look finds."""
        return list(from_batch(next(self._windows).changes))

    def look_in_vain(self) -> bool:
        """Whether the next look finds nothing, or that there is a successor."""
        with suppress(TermLost):
            return self.look() == []
        return True

    def ids(self, count: int) -> list[int | None]:
        return [row_id(change) for change in self.changes(count)]
