"""Windows: what became visible between two snapshots, in the order of ids, recorded before anything of it is handed out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

from penstock.errors import SourcePruned
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.rows import COLUMNS, PAGE_BYTES, WEIGHT, Row
from penstock.sources.outbox.sequence import IS_FIT

if TYPE_CHECKING:
    import psycopg

PAGE = 10_000
"""At most so many rows are read at a time. A longer window is read along the ids: sorting it for each page would take too long."""

LITTLE = 1000
"""Rows that come with the window that was recorded for them, without a second question."""

AHEAD = 100
_FIELDS = "number, after, rows, since::text, upto::text"


@dataclass(frozen=True, slots=True)
class Window:
    """The rows whose transactions are visible in `upto` and were not in `since`; they stand at the positions behind `after`."""

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
        """What became visible behind the last window: of later transactions, and of those that were open then."""
        return self._between("(select upto from tip)", "and xid < pg_snapshot_xmax(pg_current_snapshot())")

    @cached_property
    def advance(self) -> str:
        """Record a window up to now, unless it would be empty, or ids do not tell the order of its rows.

        The first windows behind a number; this one with its rows if they are few.
        """
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
        """How many rows lie behind the last window, and when the oldest of them was made."""
        return (
            f"with tip as (select upto from {self.names.window} order by number desc limit 1)"
            f" select count(*), min(created_at) from ({self.fresh}) found"
        )

    @cached_property
    def short(self) -> str:
        """The rows of a short window behind an id."""
        found = self._between(
            "%(since)s::pg_snapshot", "and xid < pg_snapshot_xmax(%(upto)s) and pg_visible_in_snapshot(xid, %(upto)s)"
        )
        return self._page(f"({found}) found where id > %(id)s")

    @cached_property
    def long(self) -> str:
        """The same of a long one."""
        return self._page(f"{self.names.rows} where id > %(id)s and {inside()}")

    def _page(self, rows: str) -> str:
        """The first of these rows: at most so many, and as many as fit into PAGE_BYTES, but at least one."""
        limited = f"select * from {rows} order by id offset {self._left} limit %(limit)s"
        weighed = f"select *, sum({WEIGHT}) over (order by id rows unbounded preceding) - ({WEIGHT}) as bytes from ({limited}) few"
        return f"select {COLUMNS} from ({weighed}) weighed where bytes < {PAGE_BYTES} order by id"

    @cached_property
    def _left(self) -> str:
        """How many of the rows that are left of a window lie before a position, as the statement itself sees it."""
        pruned = f"(select pruned from {self.names.life} order by number desc limit 1)"
        return f"case when %(id)s = 0 then %(position)s - greatest(%(after)s, {pruned}) else 0 end"

    def _between(self, since: str, further: str = "") -> str:
        later, opened = f"xid >= pg_snapshot_xmax({since})", f"xid = any(array(select pg_snapshot_xip({since})))"
        return " union all ".join(f"select * from {self.names.rows} where {of} {further}" for of in (later, opened))


def inside() -> str:
    """Whether a row is in a window; without a range of transaction ids, so that only the index of ids can be used."""
    return "pg_visible_in_snapshot(xid, %(upto)s) and not pg_visible_in_snapshot(xid, %(since)s)"


class Windows:
    """The windows of an outbox, over one connection."""

    def __init__(self, connection: psycopg.Connection[Any], names: Names) -> None:
        self._connection, self._names, self._sql = connection, names, Sql(names)
        self._cursor, self._advance = connection.cursor(binary=True), self._sql.advance.encode()

    def advance(self, life: str, number: int) -> list[tuple[Window, list[Row]]]:
        """Record what is new, if anything; the windows behind this number that are next, without a gap, and the rows of a new one.

        Of one with many rows none are given: they are read page by page.
        """
        lines = self._cursor.execute(self._advance, {"life": life, "number": number, "table": self._names.rows}).fetchall()
        found = [(Window(*of), [line[5:] for line in same]) for of, same in groupby(lines, lambda line: line[:5])]
        return [(window, _real(rows)) for place, (window, rows) in enumerate(found, number + 1) if window.number == place]

    def tip(self) -> Window:
        """The last one: there always is one, since the first is made with the outbox."""
        found = self._one("order by number desc limit 1")
        assert found is not None
        return found

    def at(self, position: int) -> Window:
        """The window that holds the row behind a position; the last one if there is none yet."""
        before = self._one("where after <= %s and rows > 0 order by after desc limit 1", position)
        if before and before.end > position:
            return before
        return self._one("where after >= %s and rows > 0 order by after limit 1", position) or self.tip()

    def last_before(self, after: int, upto: int) -> Window | None:
        """The last window that ends at or before a position and lies behind another."""
        return self._one(
            "where after >= %s and after <= %s and after + rows <= %s and rows > 0 order by after desc limit 1", after, upto, upto
        )

    def since(self, moment: datetime) -> Window | None:
        """The first window that was recorded at this moment or later: no earlier one has a row that was made then."""
        return self._one("where made_at >= %s and rows > 0 order by number limit 1", moment)

    def waiting(self) -> tuple[int, Any]:
        """How many rows are in no window yet, and when the oldest of them was made."""
        count, at = self._connection.execute(self._sql.waiting.encode()).fetchone() or (0, None)
        return count, at

    def pages(self, window: Window, position: int, page: int = PAGE) -> Iterator[Sequence[Row]]:
        """The rows of a window behind a position. Raises SourcePruned if the first of them are gone."""
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

    def _one(self, rest: str, *facts: object) -> Window | None:
        found = self._connection.execute(f"select {_FIELDS} from {self._names.window} {rest}".encode(), facts).fetchone()
        return Window(*found) if found else None


def _real(rows: list[Row]) -> list[Row]:
    """Without the empty one that stands for no rows."""
    return rows if rows[0][0] is not None else []


def pruned(names: Names, position: int) -> SourcePruned:
    """The error for a reader that comes too late."""
    return SourcePruned(f"the messages behind {position} have been purged from {names.table}: it did not wait for this pipeline")
