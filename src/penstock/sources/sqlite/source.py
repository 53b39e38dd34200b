"""The capture log of a SQLite database as a source of changes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

import pyarrow as pa

from penstock.change import Change, Lane
from penstock.cursor import Cursor
from penstock.errors import ConfigInvalid
from penstock.following import Polled
from penstock.settings import absent, settings
from penstock.source import Backlog, Following, Span, Stamp
from penstock.sources.one_lane import OneLane, cuts, moment, number, pieces
from penstock.sources.retain import Retain
from penstock.sources.sqlite.database import opened, transaction
from penstock.sources.sqlite.follow import follow
from penstock.sources.sqlite.image import Choice
from penstock.sources.sqlite.log import Log, reading
from penstock.sources.sqlite.point import Point, any_place, of_cursor
from penstock.sources.sqlite.ranges import RangePoint
from penstock.sources.sqlite.schema import matcher
from penstock.sources.sqlite.settle import SqliteRetention
from penstock.sources.sqlite.snapshot import SqliteSnapshot, plan
from penstock.text.size import Size

LANE = Lane("log")
_PATIENCE = 5.0  # seconds to wait for writers


@dataclass(frozen=True, slots=True)
class SqliteSeek:
    """Times in the log, and its next incarnation."""

    database: str
    reading: Callable[[], AbstractContextManager[Log]]

    def since(self, lane: Lane, moment: datetime) -> Cursor:
        """The cursor before the first change of this time or later."""
        with self.reading() as log:
            return log.since(moment).to_cursor()

    def renew(self) -> None:
        """Begin a new incarnation of a rewound log, once an operator has chosen where to continue."""
        with opened(self.database, "rw", _PATIENCE) as connection, transaction(connection, "immediate"):
            connection.execute("update _penstock_meta set value = ? where name = 'incarnation'", (secrets.token_hex(8),))


@settings
class SqliteSource(OneLane):
    """The changes in the log of a captured database; one lane, whose positions are the sequence of the log."""

    database: str
    tables: str | None = absent("all captured tables")
    columns: str | None = absent("all columns")
    row_ids_only: bool = False
    start: Literal["beginning", "now", "snapshot"] = "beginning"
    retain: Retain = Retain()
    heal: bool = True
    max_row: Size | None = absent("a sixteenth of the heap")
    lane = LANE

    def __post_init__(self) -> None:
        try:
            matcher("tables", self.tables)
            matcher("columns", self.columns)
        except ConfigInvalid as error:
            raise ValueError(error.message) from error
        if self.columns is not None and self.row_ids_only:
            raise ValueError("columns and row_ids_only exclude each other: remove one of them")

    @property
    def snapshot(self) -> SqliteSnapshot:
        """The rows of the captured tables."""
        return SqliteSnapshot(self.database, self._reading, self._choice)

    @property
    def retention(self) -> SqliteRetention:
        """The registered pipelines."""
        return SqliteRetention(self.database, self.retain)

    @property
    def seek(self) -> SqliteSeek:
        """Times in the log."""
        return SqliteSeek(self.database, self._reading)

    def begin(self, lane: Lane, start: str) -> Cursor:
        """The cursor at a start or a position."""
        if start == "snapshot":
            return plan(self.database, matcher("tables", self.tables), of_cursor(self.head(lane))).to_cursor()
        with self._reading() as log:
            extent = log.confirm()
            before = extent.first - 1
            position = (
                before if start == "beginning" else extent.head if start == "now" else number(start, "beginning, now, snapshot")
            )
            place = Point(extent.incarnation, before, "") if position == before else log.place(position)
        if place is None:
            raise ConfigInvalid(f"the log has no change {position}", f"choose a position from {before} to {extent.head}")
        return place.to_cursor()

    def head(self, lane: Lane) -> Cursor:
        """The cursor after the last change."""
        return self.begin(lane, "now")

    def position(self, cursor: Cursor) -> int:
        """The sequence number of the last change before the cursor."""
        return any_place(cursor).position

    def incarnation(self, cursor: Cursor) -> str:
        """The incarnation of the log."""
        return any_place(cursor).incarnation

    def cursor_after(self, change: Change, since: Cursor) -> Cursor:
        """The cursor immediately after this change."""
        place = any_place(since)
        if isinstance(place, RangePoint):
            return since  # a reader can continue only at the end of a range
        return place.moved(change.position, "" if place.overlaps(change.position) else change.checksum()).to_cursor()

    def split(self, span: Span, parts: int) -> Sequence[Span]:
        """Spans with about equal numbers of positions."""
        after, upto = of_cursor(span.after), of_cursor(span.upto)
        if after.position >= upto.position:
            return []
        with self._reading() as log:
            inner = [place.to_cursor() for place in map(log.place, cuts(after.position, upto.position, parts)) if place]
        return pieces(span, inner)

    def read(self, span: Span, reader: Stamp) -> Iterator[pa.RecordBatch]:
        """The changes of a span."""
        place, upto = of_cursor(span.after), of_cursor(span.upto)
        with self._reading() as log:
            log.confirm(upto)
            while place.position < upto.position:
                chunk = log.chunk(place, upto.position)
                place = chunk.end
                if chunk.changes.num_rows:
                    yield chunk.changes

    def open(self, lane: Lane, after: Cursor, reader: Stamp) -> Following:
        """Changes from this cursor on; a database that is replaced must continue at the same place."""
        return Polled(follow(self.database, self._reading, of_cursor(after)))

    def backlog(self, lane: Lane, after: Cursor, upto: Cursor | None = None, most: int | None = None) -> Backlog:
        """The number of changes after this cursor, also while capture is broken."""
        place = of_cursor(after)
        with reading(self.database, matcher("tables", self.tables), verifies=False) as log:
            extent = log.confirm(place)
            head = of_cursor(upto).position if upto else extent.head
            changes, at = log.waiting(place.position, head, most)
        return Backlog(head, changes, moment(at))

    def _reading(self) -> AbstractContextManager[Log]:
        return reading(self.database, matcher("tables", self.tables), self._choice, heals=self.heal)

    @property
    def _choice(self) -> Choice:
        return Choice(self.columns, self.row_ids_only)


def registered(address: str, table: str) -> SqliteSource | None:
    """The source of this database, for its registered pipelines."""
    return SqliteSource(database=address) if "://" not in address and Path(address).is_file() else None
