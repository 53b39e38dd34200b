"""The table in databases that have no arrays: headers are lists in JSON, and marks are text.

A statement that looks for rows does not lock, and one that locks names its rows: nobody waits for a writer that has not committed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from typing import Any, Protocol

from penstock.source import Stamp
from penstock.sources.outbox.mark.stamp import Span, from_, mark, position_of
from penstock.sources.outbox.mark.table import Row, Text
from penstock.sources.outbox.rows import PAGE_BYTES

_COLUMNS = "id, leader_id, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values"
_WITHIN = "leader_id between ? and ? and substr(leader_id, 15, 1) = '8'"  # the version: random ones may lie between, too


class Dialect(Protocol):
    """What a database does in its own way; statements have `?` for what is bound."""

    @property
    def table(self) -> str:
        """The table's name, for SQL."""

    @property
    def updating(self) -> str:
        """How a statement begins that updates rows by their ids, and looks at no other."""

    @property
    def deleting(self) -> str:
        """The same for one that deletes."""

    @property
    def made_at(self) -> str:
        """When a row was made, in microseconds since 1970: an expression."""

    @property
    def now(self) -> str:
        """The database's time in the same way."""

    @property
    def weight(self) -> str:
        """How many bytes a row takes: an expression."""

    @property
    def locking(self) -> str:
        """What a `select` ends with that locks what it finds, and passes over what is locked."""

    def ask(self, sql: str, facts: Sequence[Any] = ()) -> list[Any]:
        """The rows of a statement."""

    def tell(self, sql: str, facts: Sequence[Any] = ()) -> int:
        """How many rows a statement has changed, durably, unless a transaction is open."""

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction in which no other writer changes what was locked."""

    def stamp(self, marks: Sequence[tuple[int, str]]) -> None:
        """Give these rows these marks."""


class ListedTable:
    """Keeps the promises of Table."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect, self._table = dialect, dialect.table

    def mark(self, stamp: Stamp, after: int, limit: int) -> list[Row]:
        """In one transaction; none is begun where there is nothing to mark."""
        free, left_alone = f"(leader_id is null or not ({_WITHIN}))", from_(stamp)
        if not self._dialect.ask(f"select 1 from {self._table} where {free} limit 1", left_alone):
            return []
        with self._dialect.transaction():
            due = self._first(f"where {free} order by id limit {limit} {self._dialect.locking}", left_alone)
            found = self._rows(f"where {_among(due)} order by id")
            base = max(after, self.now())
            marked = [row._replace(position=base + place) for place, row in enumerate(found, 1)]
            self._dialect.stamp([(row.id, mark(stamp, row.position)) for row in marked])
        return marked

    def marked(self, span: Span, most: int | None = None) -> list[tuple[int, str]]:
        """By a look at all rows: there is no index of marks."""
        return [(row, str(found)) for row, found in self._found("id, leader_id", span, _limit(most))]

    def upto(self, span: Span) -> list[tuple[int, str | None, Any]]:
        """By the primary key, once the last is found."""
        last = f"select max(id) from {self._table} where {_WITHIN}"
        sql = f"select id, leader_id, kafka_topic, kafka_key from {self._table} where id <= ({last}) order by id"
        return [(row, marked, tuple(key)) for row, marked, *key in self._dialect.ask(sql, span)]

    def remark(self, rows: Sequence[tuple[int, str, str]]) -> None:
        """All of them in one transaction."""
        if not rows:
            return
        with self._dialect.transaction():
            which = f"select id, leader_id from {self._table} where {_among([row for row, _, _ in rows])} {self._dialect.locking}"
            bearing = dict(self._dialect.ask(which))
            self._dialect.stamp([(row, new) for row, old, new in rows if bearing.get(row) == old])

    def read(self, span: Span, limit: int) -> list[Row]:
        """In the order of marks."""
        first = self._first(f"where {_WITHIN} order by leader_id limit {limit}", span)
        return self._rows(f"where {_among(first)} and {_WITHIN} order by leader_id", span)

    def purge(self, ids: Sequence[int], span: Span) -> int:
        """In one statement."""
        return self._dialect.tell(f"{self._dialect.deleting} where {_among(ids)} and {_WITHIN}", span)

    def purge_span(self, span: Span, limit: int) -> int:
        """Those that a look has found."""
        return self.purge([row for (row,) in self._found("id", span, f"order by id limit {limit}")], span)

    def reset(self, ids: Sequence[int] | None, span: Span) -> int:
        """Those that a look has found, if no ids are given."""
        which = [row for (row,) in self._found("id", span)] if ids is None else ids
        return self._dialect.tell(f"{self._dialect.updating} set leader_id = null where {_among(which)} and {_WITHIN}", span)

    def bearing(self, ids: Sequence[int], span: Span) -> int:
        """By the primary key."""
        [(count,)] = self._dialect.ask(f"select count(*) from {self._table} where {_among(ids)} and {_WITHIN}", span)
        return int(count)

    def there(self, ids: Sequence[int]) -> int:
        """By the primary key."""
        [(count,)] = self._dialect.ask(f"select count(*) from {self._table} where {_among(ids)}")
        return int(count)

    def now(self) -> int:
        """As `mark` takes it."""
        [(now,)] = self._dialect.ask(f"select {self._dialect.now}")
        return int(now)

    def waiting(self, delivered: Span, most: int | None = None) -> tuple[int, int | None]:
        """A look at all rows."""
        some = f"select create_time from {self._table} where leader_id is null or not ({_WITHIN}) {_limit(most)}"
        [(count, at)] = self._dialect.ask(f"select count(*), min({self._dialect.made_at}) from ({some}) few", delivered)
        return int(count), None if at is None else int(at)

    def _found(self, what: str, span: Span, rest: str = "") -> list[Any]:
        return self._dialect.ask(f"select {what} from {self._table} where {_WITHIN} {rest}", span)

    def _first(self, rest: str, facts: Sequence[Any]) -> list[int]:
        """The ids of the first rows that fill a page."""
        found = self._dialect.ask(f"select id, {self._dialect.weight} from {self._table} {rest}", facts)
        before = accumulate((int(weight) for _, weight in found), initial=0)
        return [row for (row, _), size in zip(found, before, strict=False) if size < PAGE_BYTES]

    def _rows(self, rest: str, facts: Sequence[Any] = ()) -> list[Row]:
        made_at = f"coalesce({self._dialect.made_at}, {self._dialect.now})"  # of whatever an application calls a time
        found = self._dialect.ask(f"select {_COLUMNS}, {made_at} from {self._table} {rest}", facts)
        return [_row(row) for row in found]


def _limit(most: int | None) -> str:
    return "" if most is None else f"limit {most}"


def _among(ids: Sequence[int]) -> str:
    return f"id in ({', '.join(map(str, map(int, ids)))})" if ids else "1 = 0"


def _row(found: Sequence[Any]) -> Row:
    row, marked, topic, key, value, names, said, at = found
    position = position_of(marked) if marked else 0
    try:
        return Row(row, position, topic, key, value, _list(names), _list(said), int(at))
    except ValueError as error:
        return Row(row, position, topic, key, value, None, None, int(at), f"headers are no lists in JSON: {error}")


def _list(text: Any) -> list[Any]:
    """Texts, or null; whatever else stands in a list is taken as it is written. Raises ValueError."""
    found = json.loads(text) if text else []
    if not isinstance(found, list):
        raise ValueError(f"{str(text)[:40]!r}")  # noqa: TRY004 - what is wrong is the value
    return [_text(one) for one in found]


def _text(one: Any) -> Text:
    return one if one is None or isinstance(one, str) else json.dumps(one)
