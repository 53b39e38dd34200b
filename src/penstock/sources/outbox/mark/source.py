"""An outbox in the layout of goharvest as a source of changes, whose rows are marked, delivered and purged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import field
from datetime import timedelta
from typing import Literal

import pyarrow as pa

from penstock.change import Change, Lane
from penstock.cursor import Cursor
from penstock.errors import ConfigInvalid
from penstock.following import Polled
from penstock.settings import absent, refuse, settings
from penstock.source import ANONYMOUS, Backlog, Following, Span, Stamp
from penstock.sources.one_lane import OneLane, moment
from penstock.sources.outbox.mark.databases import named, opened
from penstock.sources.outbox.mark.follow import PAGE, follow, left, take_over
from penstock.sources.outbox.mark.parts import MarkLeases, MarkRetention
from penstock.sources.outbox.mark.point import LIFE, of_cursor, to_cursor
from penstock.sources.outbox.mark.stamp import EVERY, of, position_of
from penstock.sources.outbox.mark.table import Opened
from penstock.text.duration import Duration
from penstock.text.size import Size

LANE = Lane("outbox")
_SENDS_ALL = "reader mark sends and purges every row of the table: delete rows that are not to be sent"


@settings
class MarkSource(OneLane):
    """The rows of one table, which no other pipeline reads; one lane, positions are the times at which they were marked."""

    database: str = field(repr=False)
    table: str = "outbox"
    reader: Literal["mark"] = "mark"
    start: Literal["beginning"] = "beginning"
    mark_query_records: int = 2000
    mark_backoff: Duration = timedelta(milliseconds=10)
    max_row: Size | None = absent("a sixteenth of the heap")
    lane, gives_messages = LANE, True

    def __post_init__(self) -> None:
        named(self.database, self.table)
        refuse(
            not 1 <= self.mark_query_records <= PAGE and f"mark_query_records must be from 1 to {PAGE}",
            not timedelta(0) <= self.mark_backoff <= timedelta(seconds=10) and "mark_backoff must be from 0ms to 10s",
        )

    @property
    def retention(self) -> MarkRetention:
        """The purging of delivered rows."""
        return MarkRetention(self._opened)

    @property
    def row_lease(self) -> MarkLeases:
        """The marks of rows."""
        return MarkLeases(self._opened)

    def begin(self, lane: Lane, start: str) -> Cursor:
        """The cursor before all rows: every row of the table is undelivered."""
        if start != "beginning":
            raise ConfigInvalid(f"{start!r} is no place to start at", _SENDS_ALL)
        return to_cursor(0)

    def head(self, lane: Lane) -> Cursor:
        """The cursor after the last row; this numbers all rows and leases none."""
        with self._opened() as table:
            last = max((position_of(marked) for _, marked in table.marked(EVERY)), default=0)
            while rows := table.mark(ANONYMOUS, last, PAGE):
                last = rows[-1].position
        return to_cursor(last)

    def position(self, cursor: Cursor) -> int:
        """The time at which the row before the cursor was marked, in microseconds since 1970."""
        return of_cursor(cursor)[0]

    def incarnation(self, cursor: Cursor) -> str:
        """Always the same one."""
        of_cursor(cursor)
        return LIFE

    def cursor_after(self, change: Change, since: Cursor) -> Cursor:
        """The cursor immediately after this row."""
        return to_cursor(change.position, of_cursor(since)[1])

    def split(self, span: Span, parts: int) -> Sequence[Span]:
        """One span: positions are times, and give no number of rows."""
        return [span] if self.position(span.upto) > self.position(span.after) else []

    def read(self, span: Span, reader: Stamp) -> Iterator[pa.RecordBatch]:
        """All rows, which the reader leases; without a term, the numbered rows of the span."""
        if self.position(span.upto) <= self.position(span.after):
            return
        if reader == ANONYMOUS:
            with self._opened(anew=True) as table:
                take_over(table, reader, span.after)
                yield from left(table, reader, span.after, self.position(span.upto))
            return
        with closing(self.open(span.lane, span.after, reader)) as following:
            while window := following.poll(0.0):
                yield window.changes
                if window.idle:
                    return

    def open(self, lane: Lane, after: Cursor, reader: Stamp) -> Following:
        """Rows from this cursor on, which the reader leases; without a term, only where no pipeline runs."""
        return Polled(follow(self._opened, reader, after, self.mark_query_records, self.mark_backoff))

    def backlog(self, lane: Lane, after: Cursor, upto: Cursor | None = None, most: int | None = None) -> Backlog:
        """The number of undelivered rows; up to a cursor, the number of numbered ones."""
        position, since = of_cursor(after)
        with self._opened() as table:
            if upto:
                end = self.position(upto)
                return Backlog(end, len(table.marked(of(since, end, position), most)), None)
            count, at = table.waiting(of(since, position), most)
        return Backlog(position + count, count, moment(at))

    @property
    def _opened(self) -> Opened:
        return opened(self.database, self.table)
