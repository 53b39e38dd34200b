"""What the mark reader asks of a database: a handful of statements about one table, each atomic and conditioned on marks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from penstock.source import Stamp
from penstock.sources.outbox.mark.stamp import Span
from penstock.sources.outbox.rows import PAGE_BYTES

Text = str | bytes | None
WEIGHED = ("kafka_key", "kafka_value", "kafka_header_values")
"""Columns that may be large."""


class Row(NamedTuple):
    """A row of the table; `at` in microseconds since 1970, `error`: why its headers cannot be read."""

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
    """Whether there may be more rows than these: they are so many, or may fill PAGE_BYTES (a character has up to four bytes)."""
    return len(rows) >= limit or sum(map(_length, rows)) >= PAGE_BYTES // 4


def _length(row: Row) -> int:
    return sum(len(text) for text in (row.value, *(row.said or ())) if text)


class Table(Protocol):
    """The table over one connection. What spans of marks are given is a condition: rows outside them are not touched."""

    def mark(self, stamp: Stamp, after: int, limit: int) -> list[Row]:
        """Mark the lowest ids that bear no mark, or one from before the stamp, or a foreign one; the rows in the order of ids.

        Positions are the database's time in microseconds, and behind `after`. At most so many rows are marked, and no row after
        those that fill PAGE_BYTES.
        """

    def marked(self, span: Span, most: int | None = None) -> list[tuple[int, str]]:
        """The rows that bear such marks, or so many of them: id and mark."""

    def upto(self, span: Span) -> list[tuple[int, str | None, Any]]:
        """All rows up to the last one that bears such a mark, in the order of ids: id, mark, and topic and key."""

    def remark(self, rows: Sequence[tuple[int, str, str]]) -> None:
        """Give rows (id, mark, new mark) new marks, each if it still bears the old one."""

    def read(self, span: Span, limit: int) -> list[Row]:
        """The first rows with such marks, in the order of marks: at most so many, and none after those that fill PAGE_BYTES."""

    def purge(self, ids: Sequence[int], span: Span) -> int:
        """Delete those of these rows that bear such marks, durably; how many."""

    def purge_span(self, span: Span, limit: int) -> int:
        """Delete rows with such marks, at most so many; how many."""

    def reset(self, ids: Sequence[int] | None, span: Span) -> int:
        """Take such marks from these rows, or from all; how many bore them."""

    def bearing(self, ids: Sequence[int], span: Span) -> int:
        """How many of these rows bear such marks."""

    def there(self, ids: Sequence[int]) -> int:
        """How many of these rows are there, whatever mark they bear."""

    def now(self) -> int:
        """The database's time, in microseconds since 1970: what is marked later stands behind it."""

    def waiting(self, delivered: Span, most: int | None = None) -> tuple[int, int | None]:
        """How many rows there are, but for those with such marks, and when the oldest was made, in microseconds since 1970.

        No more than `most` rows are looked at.
        """


class Opened(Protocol):
    """How to reach the table."""

    def __call__(self, *, anew: bool = False) -> AbstractContextManager[Table]:
        """The table over a connection. Raises SourceUnavailable, OutboxMissing, OutboxUnfit, ConfigInvalid."""
