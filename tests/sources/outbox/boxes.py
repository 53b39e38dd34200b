"""An outbox as tests use it: who writes to it, and what a reader finds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import psycopg

from penstock.change import Change, from_batch
from penstock.cursor import Cursor
from penstock.outbox import stash
from penstock.source import ANONYMOUS, Span
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.schema import init
from penstock.sources.outbox.source import LANE, OutboxSource

Connection = psycopg.Connection[tuple[object, ...]]
Values = Callable[[list[Change]], list[str]]


class Box:
    """An outbox, those who write to it, and what a reader finds in it."""

    def __init__(self, dsn: str, table: str) -> None:
        self.dsn, self.table, self.source = dsn, table, OutboxSource(database=dsn, table=table)
        self._open: list[Connection] = []
        init(dsn, Names(table))

    @cached_property
    def start(self) -> Cursor:
        """Where it began."""
        return self.source.begin(LANE, "beginning")

    def writer(self) -> Connection:
        """A connection of an application, which commits when it says so."""
        self._open.append(psycopg.connect(self.dsn))
        return self._open[-1]

    def put(self, writer: Connection, *values: str, key: str = "k") -> None:
        """Stash without a commit."""
        for value in values:
            stash(writer, "orders", key, value, table=self.table)

    def commit(self, *values: str, key: str = "k") -> None:
        """One transaction."""
        with psycopg.connect(self.dsn) as writer:
            self.put(writer, *values, key=key)

    def changes(self, after: Cursor | None = None, upto: Cursor | None = None) -> list[Change]:
        """What is committed, in order."""
        span = Span(LANE, after or self.start, upto or self.source.head(LANE))
        return [change for batch in self.source.read(span, ANONYMOUS) for change in from_batch(batch)]

    def execute(self, sql: str) -> list[tuple[object, ...]]:
        """A statement about `{}`, which is the outbox."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            done = connection.execute(sql.replace("{}", self.table).encode())
            return done.fetchall() if done.description else []

    def close(self) -> None:
        for connection in self._open:
            connection.close()


class Tail:
    """A reader that goes on from where it was, as a pipeline does."""

    def __init__(self, box: Box, values: Values) -> None:
        self._box, self._values, self.cursor = box, values, box.start

    def news(self) -> list[str]:
        head = self._box.source.head(LANE)
        found = self._box.changes(self.cursor, head)
        self.cursor = head
        return self._values(found)
