"""Windows: the rows that became visible between two snapshots, by id; recorded before any of them is returned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import groupby
from typing import Any

from penstock.errors import SourcePruned
from penstock.sources.outbox.database import Connection
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.rows import COLUMNS, PAGE_BYTES, WEIGHT, Row
from penstock.sources.outbox.sequence import IS_FIT

PAGE = 10_000
"""The most rows of a page. A window of more than two pages is read by id: a sort for each page would take too long."""

LITTLE = 1000  # the most rows that the statement that records a window returns
AHEAD = 100
# The condition that a row is in a window, without a range of transaction ids: only the index of ids can be used.
INSIDE = "pg_visible_in_snapshot(xid, %(upto)s) and not pg_visible_in_snapshot(xid, %(since)s)"
_FIELDS = "number, after, rows, since::text, upto::text"


def unseen(since: str, further: str) -> tuple[str, str]:
    """The conditions of rows that are not visible in a snapshot: of later transactions, or of open ones; no row meets both."""
    return f"xid >= pg_snapshot_xmax({since}) and {further}", f"xid = any(array(select pg_snapshot_xip({since}))) and {further}"


BETWEEN = unseen("%(since)s::pg_snapshot", "xid < pg_snapshot_xmax(%(upto)s) and pg_visible_in_snapshot(xid, %(upto)s)")
"""The conditions that a row is in a window, by the index of transaction ids."""


@dataclass(frozen=True, slots=True)
class RecordedWindow:
    """The rows whose transactions are visible in `upto` and not in `since`, at the positions after `after`."""

    number: int
    after: int
    rows: int
    since: str
    upto: str

    @property
    def end(self) -> int:
        """The position of its last row."""
        return self.after + self.rows


@dataclass(frozen=True)
class Sql:
    """The statements about the windows of one outbox."""

    names: Names

    @cached_property
    def fresh(self) -> str:
        """Rows that became visible after the last window: of later transactions, and of those that were open at its end."""
        return self._rows(unseen("(select upto from tip)", "xid < pg_snapshot_xmax(pg_current_snapshot())"))

    @cached_property
    def advance(self) -> str:
        """Record a window up to now, unless it is empty or has no order; select the next windows, with its rows if few."""
        return (
            f"with tip as (select number, after + rows as after, upto from {self.names.window} order by number desc limit 1),"
            f" lives as (select incarnation = %(life)s as is_same from {self.names.life} order by number desc limit 1),"
            f" fresh as (select count(*) as rows, coalesce(sum({WEIGHT}), 0) as bytes from ({self.fresh}) found),"
            f" made as (insert into {self.names.window} (number, after, rows, since, upto)"
            "  select tip.number + 1, tip.after, fresh.rows, tip.upto, pg_current_snapshot() from tip, fresh, lives"
            f"  where fresh.rows > 0 and is_same and {IS_FIT} on conflict do nothing returning {_FIELDS})"
            f", windows as ((select {_FIELDS}, false as is_light from {self.names.window}, lives"
            f"  where number > %(number)s and is_same order by number limit {AHEAD})"
            f"  union all select made.*, fresh.bytes < {PAGE_BYTES} from made, fresh)"
            " select number, after, rows, since, upto, found.* from windows"
            f" left join lateral (select {COLUMNS} from ({self.fresh}) found where is_light and rows <= {LITTLE} offset 0) found"
            " on true"
            " order by number, id"
        )

    @cached_property
    def waiting(self) -> str:
        """The number of rows after the last window, and the time of the oldest."""
        return (
            f"with tip as (select upto from {self.names.window} order by number desc limit 1)"
            f" select count(*), min(created_at) from ({self.fresh}) found"
        )

    @cached_property
    def short(self) -> str:
        """The rows of a short window after an id."""
        return self._page(f"({self._rows(BETWEEN)}) found where id > %(id)s")

    @cached_property
    def long(self) -> str:
        """The rows of a long window after an id."""
        return self._page(f"{self.names.rows} where id > %(id)s and {INSIDE}")

    def _page(self, rows: str) -> str:
        """The first of these rows, up to the limit and PAGE_BYTES, but at least one."""
        pruned = f"(select pruned from {self.names.life} order by number desc limit 1)"  # in the snapshot of the statement
        skipped = f"case when %(id)s = 0 then %(position)s - greatest(%(after)s, {pruned}) else 0 end"
        limited = f"select * from {rows} order by id offset {skipped} limit %(limit)s"
        weighed = f"select *, sum({WEIGHT}) over (order by id rows unbounded preceding) - ({WEIGHT}) as bytes from ({limited}) few"
        return f"select {COLUMNS} from ({weighed}) weighed where bytes < {PAGE_BYTES} order by id"

    def _rows(self, conditions: Iterable[str]) -> str:
        return " union all ".join(f"select * from {self.names.rows} where {of}" for of in conditions)


class RecordedWindows:
    """The windows of an outbox, over one connection."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection, self._names, self._sql = connection, names, Sql(names)
        self._cursor, self._advance = connection.cursor(binary=True), self._sql.advance.encode()

    def advance(self, life: str, number: int) -> list[tuple[RecordedWindow, list[Row]]]:
        """Record a window if there are new rows; return the next windows after this number, without a gap, with rows if few."""
        lines = self._cursor.execute(self._advance, {"life": life, "number": number, "table": self._names.rows}).fetchall()
        found = [(RecordedWindow(*of), [line[5:] for line in same]) for of, same in groupby(lines, lambda line: line[:5])]
        # a window without rows has one line of nulls
        return [
            (one, rows if rows[0][0] is not None else [])
            for place, (one, rows) in enumerate(found, number + 1)
            if one.number == place
        ]

    def tip(self) -> RecordedWindow:
        """The last window; the first one is created with the outbox."""
        found = self._one("order by number desc limit 1")
        assert found is not None
        return found

    def at(self, position: int) -> RecordedWindow:
        """The window of the row after a position; the last window if there is none yet."""
        before = self._one("where after <= %s and rows > 0 order by after desc limit 1", position)
        if before and before.end > position:
            return before
        return self._one("where after >= %s and rows > 0 order by after limit 1", position) or self.tip()

    def last_before(self, after: int, upto: int) -> RecordedWindow | None:
        """The last window after a position that ends at or before another."""
        return self._one(
            "where after >= %s and after <= %s and after + rows <= %s and rows > 0 order by after desc limit 1", after, upto, upto
        )

    def since(self, moment: datetime) -> RecordedWindow | None:
        """The first window that was recorded at this time or later; earlier windows have only earlier rows."""
        return self._one("where made_at >= %s and rows > 0 order by number limit 1", moment)

    def waiting(self) -> tuple[int, Any]:
        """The number of rows that are in no window, and the time of the oldest."""
        count, at = self._connection.execute(self._sql.waiting.encode()).fetchone() or (0, None)
        return count, at

    def pages(self, window: RecordedWindow, position: int, page: int = PAGE) -> Iterator[Sequence[Row]]:
        """The rows of a window after a position. Raises SourcePruned if the first of them are purged."""
        sql = (self._sql.short if window.rows <= 2 * PAGE else self._sql.long).encode()
        facts = {"since": window.since, "upto": window.upto, "after": window.after, "limit": page, "position": position, "id": 0}
        left = window.end - max(position, window.after)
        while left > 0 and (rows := self._page(sql, facts)):
            yield rows
            facts["id"], left = rows[-1][0], left - len(rows)

    def _page(self, sql: bytes, facts: dict[str, Any]) -> list[Row]:
        from psycopg.errors import InvalidRowCountInResultOffsetClause

        try:
            return self._cursor.execute(sql, facts).fetchall()
        except InvalidRowCountInResultOffsetClause as error:
            raise pruned(self._names, facts["position"]) from error

    def _one(self, rest: str, *facts: object) -> RecordedWindow | None:
        found = self._connection.execute(f"select {_FIELDS} from {self._names.window} {rest}".encode(), facts).fetchone()
        return RecordedWindow(*found) if found else None


def pruned(names: Names, position: int) -> SourcePruned:
    """The error for a reader at a position that is purged."""
    return SourcePruned(f"messages after {position} were purged from {names.table} before this pipeline read them")
