"""The table of reader mark: statements about one table, each atomic and conditioned on marks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.change import NO_CHANGES
from penstock.source import Stamp
from penstock.sources.outbox.mark.stamp import Span
from penstock.sources.outbox.rows import PAGE_BYTES, messages

Text = str | bytes | None
WEIGHED = ("kafka_key", "kafka_value", "kafka_header_values")  # columns that may be large


class Row(NamedTuple):
    """A row of the table; `at` in microseconds since 1970, `error`: the reason why its headers cannot be read."""

    id: int
    position: int
    topic: str
    key: Text
    value: Text
    names: Sequence[str] | None
    said: Sequence[Text] | None
    at: int
    error: str | None = None


def is_page(rows: Sequence[Row], limit: int) -> bool:
    """Whether there may be more rows: these reach the limit, or may fill PAGE_BYTES (a character has up to four bytes)."""
    texts = (text for row in rows for text in (row.value, *(row.said or ())) if text)
    return len(rows) >= limit or sum(map(len, texts)) >= PAGE_BYTES // 4


def to_changes(rows: Sequence[Row]) -> pa.RecordBatch:
    """These rows as changes."""
    if not rows:
        return NO_CHANGES
    ids, positions, topics, keys, values, names, said, at, errors = zip(*rows, strict=True)
    return messages(ids, names, said, {"position": positions, "table": topics, "key": keys, "after": values, "at": at}, errors)


class Table(ABC):
    """The table over one cursor. A span of marks is a condition: rows with other marks are not touched."""

    within: str  # the condition that a row bears a mark of a span: SQL with two placeholders
    text = "leader_id"
    """SQL for a mark as text."""
    made_at: str  # SQL for the creation time of a row, in microseconds since 1970
    clock: str  # SQL for the time of the database, in microseconds since 1970

    def __init__(self, cursor: Any, table: str) -> None:
        self._cursor, self._connection = cursor, cursor.connection
        self.table, self.updating, self.deleting = table, f"update {table}", f"delete from {table}"

    def query(self, sql: str, facts: Sequence[Any] = ()) -> list[Any]:
        """The rows of a statement, all at once: no statement stays open."""
        self._cursor.execute(sql, facts)
        return list(self._cursor.fetchall())

    def execute(self, sql: str, facts: Sequence[Any] = ()) -> int:
        """The number of rows that a statement has changed, durably, unless a transaction is open."""
        self._cursor.execute(sql, facts)
        return int(self._cursor.rowcount)

    @abstractmethod
    def among(self, ids: Sequence[int]) -> tuple[str, Sequence[Any]]:
        """The condition that a row is one of these, and its values."""

    @abstractmethod
    def mark(self, stamp: Stamp, after: int, limit: int) -> list[Row]:
        """Mark the lowest ids that bear no mark, a foreign one, or one from before the stamp; return them in the order of ids.

        Positions are the database's time in microseconds, and greater than `after`. At most `limit` rows are marked, and none
        after the row that fills PAGE_BYTES.
        """

    @abstractmethod
    def remark(self, rows: Sequence[tuple[int, str, str]]) -> None:
        """Give rows (id, mark, new mark) new marks, each if it still bears the old one."""

    @abstractmethod
    def read(self, span: Span, limit: int) -> list[Row]:
        """The first rows with such marks, in the order of marks: at most `limit`, and none after the row that fills PAGE_BYTES."""

    def purge_span(self, span: Span, limit: int) -> int:
        """Delete at most `limit` rows with such marks; return their number."""
        return self.purge([row for row, _ in self.marked(span, limit)], span)

    def marked(self, span: Span, most: int | None = None) -> list[tuple[int, str]]:
        """Id and mark of the rows that bear such marks, at most `most`. A scan: there is no index of marks."""
        sql = f"select id, {self.text} from {self.table} where {self.within} order by id {_limit(most)}"
        return [(row, str(mark)) for row, mark in self.query(sql, span)]

    def upto(self, span: Span) -> list[tuple[int, str | None, Any]]:
        """Id, mark, and topic with key of all rows up to the last one that bears such a mark, in the order of ids."""
        last = f"select max(id) from {self.table} where {self.within}"
        sql = f"select id, {self.text}, kafka_topic, kafka_key from {self.table} where id <= ({last}) order by id"
        return [(row, marked, tuple(key)) for row, marked, *key in self.query(sql, span)]

    def purge(self, ids: Sequence[int], span: Span) -> int:
        """Delete those of these rows that bear such marks, durably; return their number."""
        which, facts = self.among(ids)
        return self.execute(f"{self.deleting} where {which} and {self.within}", (*facts, *span))

    def reset(self, ids: Sequence[int], span: Span) -> int:
        """Remove such marks from these rows; return the number of rows that bore them."""
        which, facts = self.among(ids)
        return self.execute(f"{self.updating} set leader_id = null where {which} and {self.within}", (*facts, *span))

    def count(self, ids: Sequence[int], span: Span | None = None) -> int:
        """The number of these rows that exist, or that bear such marks."""
        which, facts = self.among(ids)
        bearing = f"and {self.within}" if span else ""
        [(count,)] = self.query(f"select count(*) from {self.table} where {which} {bearing}", (*facts, *(span or ())))
        return int(count)

    def now(self) -> int:
        """The time of the database, in microseconds since 1970; rows that are marked later have greater positions."""
        [(now,)] = self.query(f"select {self.clock}")
        return int(now)

    def waiting(self, delivered: Span, most: int | None = None) -> tuple[int, int | None]:
        """The number of rows without such marks, at most `most`, and the earliest creation time in microseconds since 1970."""
        some = f"select create_time from {self.table} where leader_id is null or not ({self.within}) {_limit(most)}"
        [(count, at)] = self.query(f"select count(*), min({self.made_at}) from ({some}) few", delivered)
        return int(count), None if at is None else int(at)


def _limit(most: int | None) -> str:
    return "" if most is None else f"limit {most}"


Opened = Callable[..., AbstractContextManager[Table]]
"""A function that opens the table, with `anew` over a connection for this caller alone.

It raises SourceUnavailable, OutboxMissing, OutboxUnfit and ConfigInvalid."""
