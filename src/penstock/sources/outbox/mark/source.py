"""An outbox in the layout of goharvest as a source of changes, whose rows are marked, delivered and purged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import Literal

import pyarrow as pa

from penstock.change import Change, Lane
from penstock.cursor import Cursor
from penstock.duration import Duration
from penstock.errors import ConfigInvalid
from penstock.failpoint import reach
from penstock.owner import Owner
from penstock.settings import refuse, settings
from penstock.size import Size
from penstock.source import Backlog, Custody, Reader, Rowless, Settlement, Span, Stamp, Window
from penstock.sources.outbox.mark.custody import TableCustody
from penstock.sources.outbox.mark.databases import named, opened
from penstock.sources.outbox.mark.follow import PAGE, follow, left, take_over
from penstock.sources.outbox.mark.place import LIFE, of_cursor, to_cursor
from penstock.sources.outbox.mark.stamp import EVERY, NOBODY, mark, of, position_of, stamp_of
from penstock.sources.outbox.mark.table import Opened, Table

LANE = Lane("outbox")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SENDS_ALL = "reader mark sends whatever is in the table, and purges it: delete rows that are not to be sent"


@settings
class MarkSource(Rowless):
    """The rows of one table, which no other pipeline reads; one lane, positions are the times at which they were marked."""

    database: str = field(repr=False)
    table: str = "outbox"
    reader: Literal["mark"] = "mark"
    start: Literal["beginning"] = "beginning"
    mark_query_records: int = 2000
    mark_backoff: Duration = timedelta(milliseconds=10)
    max_row: Size | None = None
    is_own, gives_messages = True, True

    def __post_init__(self) -> None:
        named(self.database, self.table)
        refuse(
            not 1 <= self.mark_query_records <= PAGE and f"mark_query_records must be from 1 to {PAGE}",
            not timedelta(0) <= self.mark_backoff <= timedelta(seconds=10) and "mark_backoff must be from 0ms to 10s",
        )

    def lanes(self) -> Sequence[Lane]:
        """One lane: the table."""
        return (LANE,)

    def begin(self, lane: Lane, start: str) -> Cursor:
        """The cursor before everything: what is in the table is to be sent."""
        if start != "beginning":
            raise ConfigInvalid(f"{start!r} is no place to start at", _SENDS_ALL)
        return to_cursor(0)

    def head(self, lane: Lane) -> Cursor:
        """The cursor behind the last row; all are numbered for that, and nothing of it is anybody's."""
        with self._opened() as table:
            last = max((position_of(marked) for _, marked in table.marked(EVERY)), default=0)
            while rows := table.mark(NOBODY, last, PAGE):
                last = rows[-1].position
        return to_cursor(last)

    def goal(self, lane: Lane) -> Cursor:
        """Now, as the database's clock has it: what is there is marked later. Nothing is to be done where nothing is there."""
        with self._opened() as table:
            return to_cursor(table.now() if table.waiting(of(NOBODY, 0))[0] else 0)

    def position(self, cursor: Cursor) -> int:
        """When the row before the cursor was marked, in microseconds since 1970."""
        return of_cursor(cursor)[0]

    def incarnation(self, cursor: Cursor) -> str:
        """Always the same: the table itself says what is still to be delivered."""
        of_cursor(cursor)
        return LIFE

    def behind(self, change: Change, since: Cursor) -> Cursor:
        """The cursor just behind this row."""
        return to_cursor(change.position, of_cursor(since)[1])

    def split(self, span: Span, parts: int) -> Sequence[Span]:
        """One piece: positions say nothing about how many rows lie between."""
        return [span] if self.position(span.upto) > self.position(span.after) else []

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        """The rows of a span that were numbered and that nobody has taken yet."""
        upto = self.position(span.upto)
        if upto > self.position(span.after):
            with self._opened(anew=True) as table:
                take_over(table, NOBODY, span.after)
                yield from left(table, NOBODY, span.after, mark(NOBODY, upto))

    def follow(self, lane: Lane, after: Cursor) -> Iterator[Window]:
        """Rows from here on; only where no pipeline is at work."""
        return self.follow_as(NOBODY, lane, after)

    def read_as(self, stamp: Stamp, span: Span) -> Iterator[pa.RecordBatch]:
        """Rows until there are no more, which are this attempt's own."""
        if self.position(span.upto) <= self.position(span.after):
            return
        for window in self.follow_as(stamp, span.lane, span.after):
            yield window.changes
            if window.idle:
                return

    def follow_as(self, stamp: Stamp, lane: Lane, after: Cursor) -> Iterator[Window]:
        """Rows from here on, which are this attempt's own."""
        return follow(self._opened, stamp, after, self.mark_query_records, self.mark_backoff)

    def taken(self, lane: Lane, after: Cursor) -> Iterator[pa.RecordBatch]:
        """What bears a mark of ours behind a cursor, attempt by attempt."""
        with self._opened(anew=True) as table:
            for stamp in sorted({stamp_of(marked) for _, marked in table.marked(EVERY)} - {NOBODY}):
                yield from left(table, stamp, after, of(stamp).high)

    def custody(self, stamp: Stamp) -> Custody:
        """Purging, resetting and confirming what this attempt has marked."""
        return TableCustody(self._opened, stamp)

    def backlog(self, lane: Lane, after: Cursor) -> Backlog:
        """How many rows there are that are not delivered."""
        position, since = of_cursor(after)
        with self._opened() as table:
            count, at = table.waiting(of(since, position))
        return Backlog(position + count, count, None if at is None else _EPOCH + timedelta(microseconds=at))

    def since(self, lane: Lane, moment: datetime) -> Cursor:
        """Nothing of the past is kept."""
        raise ConfigInvalid("a table with reader mark keeps nothing that was delivered", _SENDS_ALL)

    def register(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> None:
        """A pipeline that has no watermark yet takes everything: marks of an earlier one, with other epochs, would hide rows."""
        with self._opened() as table:
            table.reset(None, EVERY)

    def registered(self, pipeline: str, lane: Lane) -> int | None:
        """Nothing is noted: what is in the table is to be delivered."""
        return None

    def readers(self) -> Sequence[Reader]:
        """Nobody is registered."""
        return ()

    def remarks(self) -> Sequence[str]:
        """Nothing."""
        return ()

    def settle(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> Settlement:
        """Purge what was delivered up to there."""
        reach("source.settling")
        position, stamp = of_cursor(upto)
        with self._opened() as table:
            return Settlement(_purged(table, stamp, position))

    def forget(self, pipeline: str, owner: Owner | None = None) -> bool:
        """Take the marks from all rows; False if none bore one."""
        with self._opened() as table:
            return table.reset(None, EVERY) > 0

    def renew(self) -> None:
        """Nothing: there is one life."""

    @property
    def _opened(self) -> Opened:
        return opened(self.database, self.table)


def _purged(table: Table, stamp: Stamp, position: int) -> int:
    """What one call purges; the next comes soon."""
    return 0 if stamp == NOBODY else table.purge_span(of(stamp, position), PAGE)
