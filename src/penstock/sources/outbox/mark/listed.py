"""The table in databases without arrays: headers are lists in JSON, and marks are text.

A statement that searches for rows does not lock, and one that locks names its rows: none waits for a writer that has not committed.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

from penstock.source import Stamp
from penstock.sources.outbox.mark.stamp import Span, from_, mark, position_of
from penstock.sources.outbox.mark.table import Row, Table
from penstock.sources.outbox.rows import PAGE_BYTES

WITHIN = "leader_id between {0} and {0} and substr(leader_id, 15, 1) = '8'"  # the version: random ones may lie between, too
_COLUMNS = "id, leader_id, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values"


class ListedTable(Table):
    """The table in such a database."""

    weight: str  # SQL for the bytes of a row
    locking = ""
    """The end of a `select` that locks the rows that it finds, and skips locked ones."""
    beginning = "begin"
    """The statement that begins a transaction in which no other writer changes locked rows."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin, then commit or roll back."""
        self.execute(self.beginning)
        try:
            yield
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()

    @abstractmethod
    def stamp(self, marks: Sequence[tuple[int, str]]) -> None:
        """Give these rows these marks."""

    def among(self, ids: Sequence[int]) -> tuple[str, Sequence[Any]]:
        """Ids as literals: there is no type for a list of them."""
        return f"id in ({', '.join(map(str, map(int, ids)))})" if ids else "1 = 0", ()

    def mark(self, stamp: Stamp, after: int, limit: int) -> list[Row]:
        """In one transaction; none is begun where there is nothing to mark."""
        free, left_alone = f"(leader_id is null or not ({self.within}))", from_(stamp)
        if not self.query(f"select 1 from {self.table} where {free} limit 1", left_alone):
            return []
        with self.transaction():
            due = self._first(f"where {free} order by id limit {limit} {self.locking}", left_alone)
            found = self._rows(f"where {self.among(due)[0]} order by id")
            base = max(after, self.now())
            marked = [row._replace(position=base + place) for place, row in enumerate(found, 1)]
            self.stamp([(row.id, mark(stamp, row.position)) for row in marked])
        return marked

    def remark(self, rows: Sequence[tuple[int, str, str]]) -> None:
        """All of them in one transaction."""
        if not rows:
            return
        with self.transaction():
            which, _ = self.among([row for row, _, _ in rows])
            bearing = dict(self.query(f"select id, leader_id from {self.table} where {which} {self.locking}"))
            self.stamp([(row, new) for row, old, new in rows if bearing.get(row) == old])

    def read(self, span: Span, limit: int) -> list[Row]:
        """Ids first: the page ends by their sizes."""
        first = self._first(f"where {self.within} order by leader_id limit {limit}", span)
        return self._rows(f"where {self.among(first)[0]} and {self.within} order by leader_id", span)

    def _first(self, rest: str, facts: Sequence[Any]) -> list[int]:
        """The ids of the first rows that fill a page."""
        found = self.query(f"select id, {self.weight} from {self.table} {rest}", facts)
        before = accumulate((int(weight) for _, weight in found), initial=0)
        return [row for (row, _), size in zip(found, before, strict=False) if size < PAGE_BYTES]

    def _rows(self, rest: str, facts: Sequence[Any] = ()) -> list[Row]:
        made_at = f"coalesce({self.made_at}, {self.clock})"  # a column of text may hold anything
        return [_row(row) for row in self.query(f"select {_COLUMNS}, {made_at} from {self.table} {rest}", facts)]


def _row(found: Sequence[Any]) -> Row:
    row, marked, topic, key, value, names, said, at = found
    position = position_of(marked) if marked else 0
    try:
        return Row(row, position, topic, key, value, _list(names), _list(said), int(at))
    except ValueError as error:
        return Row(row, position, topic, key, value, None, None, int(at), f"headers are no lists in JSON: {error}")


def _list(text: Any) -> list[Any]:
    """Texts or null; any other element is taken as its JSON. Raises ValueError."""
    found = json.loads(text) if text else []
    if not isinstance(found, list):
        raise ValueError(f"{str(text)[:40]!r}")  # noqa: TRY004 - the value is wrong, not a type of the program
    return [one if one is None or isinstance(one, str) else json.dumps(one) for one in found]
