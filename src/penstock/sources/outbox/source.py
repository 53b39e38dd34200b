"""The outbox of a Postgres database as a source of changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import pyarrow as pa

from penstock.change import Change, Lane
from penstock.cursor import Cursor
from penstock.following import Polled
from penstock.settings import absent, settings
from penstock.source import Backlog, Following, Span, Stamp, at_most
from penstock.sources.one_lane import OneLane, cuts, moment, number, pieces
from penstock.sources.outbox import schema
from penstock.sources.outbox.follow import follow
from penstock.sources.outbox.log import place_after, reading
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.point import Point, of_cursor
from penstock.sources.outbox.settle import OutboxRetention
from penstock.sources.retain import Retain
from penstock.text.size import Size

LANE = Lane("outbox")


@dataclass(frozen=True, slots=True)
class OutboxSeek:
    """Times in the outbox, and its next incarnation."""

    database: str = field(repr=False)
    names: Names

    def since(self, lane: Lane, moment: datetime) -> Cursor:
        """The cursor before the first message of this time or later."""
        with reading(self.database, self.names) as log:
            return log.since(moment).to_cursor()

    def renew(self) -> None:
        """Begin a new incarnation of an outbox that was restored, once an operator has chosen where to continue."""
        schema.renew(self.database, self.names)


@settings
class OutboxSource(OneLane):
    """The messages of an outbox; one lane, whose positions count them in the order of delivery."""

    database: str = field(repr=False)
    table: str = "outbox"
    reader: Literal["snapshot", "mark"] = "snapshot"
    start: Literal["beginning", "now"] = "beginning"
    notify: bool = False
    retain: Retain = Retain()
    max_row: Size | None = absent("a sixteenth of the heap")
    lane, gives_messages = LANE, True

    def __post_init__(self) -> None:
        Names(self.table)
        if self.reader == "mark":
            raise ValueError("reader mark belongs to MarkSource")
        if not self.database.startswith(("postgresql://", "postgres://")):
            raise ValueError("source.database must be a DSN of Postgres: postgresql://user@host/database")

    @property
    def retention(self) -> OutboxRetention:
        """The registered pipelines."""
        return OutboxRetention(self.database, self._names, self.retain)

    @property
    def seek(self) -> OutboxSeek:
        """Times in the outbox."""
        return OutboxSeek(self.database, self._names)

    def begin(self, lane: Lane, start: str) -> Cursor:
        """The cursor at a start or a position."""
        with reading(self.database, self._names) as log:
            if start == "now":
                return log.head().to_cursor()
            if start == "beginning":
                life = log.life()
                return Point(life.incarnation, life.pruned).to_cursor()
            return log.place(number(start, "beginning, now")).to_cursor()

    def head(self, lane: Lane) -> Cursor:
        """The cursor after the last committed message."""
        return self.begin(lane, "now")

    def position(self, cursor: Cursor) -> int:
        """The number of messages before the cursor, since the outbox was created."""
        return of_cursor(cursor).position

    def incarnation(self, cursor: Cursor) -> str:
        """The incarnation of the outbox."""
        return of_cursor(cursor).incarnation

    def cursor_after(self, change: Change, since: Cursor) -> Cursor:
        """The cursor immediately after this message."""
        return place_after(change, of_cursor(since).incarnation).to_cursor()

    def split(self, span: Span, parts: int) -> Sequence[Span]:
        """Spans with about equal numbers of messages."""
        after, upto = of_cursor(span.after), of_cursor(span.upto)
        inner = [Point(upto.incarnation, cut).to_cursor() for cut in cuts(after.position, upto.position, parts)]
        return pieces(span, inner) if after.position < upto.position else []

    def read(self, span: Span, reader: Stamp) -> Iterator[pa.RecordBatch]:
        """The messages of a span."""
        with reading(self.database, self._names) as log:
            yield from log.between(of_cursor(span.after), of_cursor(span.upto))

    def open(self, lane: Lane, after: Cursor, reader: Stamp) -> Following:
        """Messages from this cursor on."""
        return Polled(follow(self.database, self._names, of_cursor(after), self.notify))

    def backlog(self, lane: Lane, after: Cursor, upto: Cursor | None = None, most: int | None = None) -> Backlog:
        """The number of messages after this cursor; this records no window."""
        place = of_cursor(after)
        with reading(self.database, self._names) as log:
            log.confirm(place)
            end, fresh, at = (of_cursor(upto).position, 0, None) if upto else (log.windows.tip().end, *log.windows.waiting())
            if end > place.position and (first := log.at(place.position + 1)):
                at = moment(first.at)
        return Backlog(end + fresh, at_most(max(0, end + fresh - place.position), most), at)

    @property
    def _names(self) -> Names:
        return Names(self.table)


def registered(address: str, table: str) -> OutboxSource | None:
    """The source of this outbox, for its registered pipelines."""
    return OutboxSource(database=address, table=table) if "://" in address else None
