"""The capture log of a SQLite database as a source of changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Literal

import pyarrow as pa

from penstock.change import Change, Lane
from penstock.cursor import Cursor
from penstock.errors import ConfigInvalid
from penstock.owner import Owner
from penstock.settings import settings
from penstock.size import Size
from penstock.source import Backlog, Reader, Settlement, Span, Window
from penstock.sources.retain import Registrant, Retain
from penstock.sources.sqlite import readers
from penstock.sources.sqlite.follow import follow
from penstock.sources.sqlite.image import Choice
from penstock.sources.sqlite.install import renew
from penstock.sources.sqlite.log import Log, reading
from penstock.sources.sqlite.place import Place, any_place, of_cursor
from penstock.sources.sqlite.ranges import RangePlace
from penstock.sources.sqlite.remaining import remaining
from penstock.sources.sqlite.schema import matcher, selector
from penstock.sources.sqlite.settle import register, settle
from penstock.sources.sqlite.snapshot import plan, read

LANE = Lane("log")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _number(start: str) -> int:
    try:
        return int(start)
    except ValueError:
        raise ConfigInvalid(f"{start!r} is no place to start at", "choose beginning, now, snapshot or a position") from None


@settings
class SqliteSource:
    """The changes that the triggers of `penstock capture enable` have logged; one lane, positions are the log's sequence."""

    database: str
    tables: str | None = None
    columns: str | None = None
    row_ids_only: bool = False
    start: Literal["beginning", "now", "snapshot"] = "beginning"
    retain: Retain = Retain()
    heal: bool = True
    max_row: Size | None = None
    is_own, gives_messages = False, False

    def __post_init__(self) -> None:
        try:
            selector(self.tables)
            matcher("columns", self.columns)
        except ConfigInvalid as error:
            raise ValueError(error.message) from error
        if self.columns is not None and self.row_ids_only:
            raise ValueError("columns and row_ids_only exclude each other: remove one of them")

    def lanes(self) -> Sequence[Lane]:
        """One lane: the log."""
        return (LANE,)

    def begin(self, lane: Lane, start: str) -> Cursor:
        """The cursor at a word or a position."""
        if start == "snapshot":
            return plan(self.database, selector(self.tables), of_cursor(self.head(lane))).to_cursor()
        with self._reading() as log:
            extent = log.extent()
            before = extent.first - 1
            position = before if start == "beginning" else extent.head if start == "now" else _number(start)
            place = Place(extent.incarnation, before, "") if position == before else log.place(position)
        if place is None:
            raise ConfigInvalid(f"the log has no change {position}", f"choose a position from {before} to {extent.head}")
        return place.to_cursor()

    def head(self, lane: Lane) -> Cursor:
        """The cursor behind the last change."""
        return self.begin(lane, "now")

    def position(self, cursor: Cursor) -> int:
        """The sequence number of the last change before the cursor."""
        return any_place(cursor).position

    def incarnation(self, cursor: Cursor) -> str:
        """Which life of the log it belongs to."""
        return any_place(cursor).incarnation

    def behind(self, change: Change, since: Cursor) -> Cursor:
        """The cursor just behind this change."""
        place = any_place(since)
        if isinstance(place, RangePlace):
            return since  # only the end of a range is a place to go on from
        return place.moved(change.position, "" if place.overlaps(change.position) else change.witness()).to_cursor()

    def ranges(self, cursor: Cursor) -> Mapping[Lane, Cursor]:
        """The ranges of rows that go before the log from this cursor on."""
        return {Lane(f"snapshot:{place.number}"): place.to_cursor() for place in of_cursor(cursor).pending()}

    def rows(self, cursor: Cursor, *, again: bool) -> Iterator[Window]:
        """The rows of a range, as they are now."""
        place = any_place(cursor)
        assert isinstance(place, RangePlace)
        with self._reading() as log:
            log.extent()  # heals, where that is allowed
        return read(self.database, place, self._choice, again=again)

    def remaining(self, ranges: Sequence[Cursor]) -> Backlog:
        """The rows that these ranges hold, all of them as old as the plan."""
        places = [place for place in map(any_place, ranges) if isinstance(place, RangePlace)]
        at = min((place.planned_at for place in places), default=None)
        moment = None if at is None else _EPOCH + timedelta(microseconds=at)
        return Backlog(max((place.since for place in places), default=0), remaining(self.database, places), moment)

    def joined(self, cursor: Cursor, ends: Sequence[Cursor]) -> Cursor:
        """The cursor behind the ranges that ended so: the log from where it stood before them."""
        read = [place for place in map(any_place, ends) if isinstance(place, RangePlace)]
        return of_cursor(cursor).joined(read).to_cursor()

    def split(self, span: Span, parts: int) -> Sequence[Span]:
        """Spans of about the same number of positions."""
        after, upto = of_cursor(span.after), of_cursor(span.upto)
        length = upto.position - after.position
        cuts = sorted({after.position + length * i // parts for i in range(1, parts)} - {after.position, upto.position})
        with self._reading() as log:
            places = [place.to_cursor() for place in map(log.place, cuts) if place]
        ends = [span.after, *places, span.upto]
        return [Span(span.lane, first, last) for first, last in pairwise(ends)] if length > 0 else []

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        """The changes of a span."""
        place, upto = of_cursor(span.after), of_cursor(span.upto)
        with self._reading() as log:
            log.confirm(upto)
            while place.position < upto.position:
                stretch = log.stretch(place, upto.position)
                place = stretch.end
                if stretch.changes.num_rows:
                    yield stretch.changes

    def follow(self, lane: Lane, after: Cursor) -> Iterator[Window]:
        """Changes from here on; a database that is replaced must go on at the same place."""
        return follow(self.database, selector(self.tables), of_cursor(after), self._choice, heals=self.heal)

    def backlog(self, lane: Lane, after: Cursor) -> Backlog:
        """How much waits behind this cursor; also while capture is broken."""
        place = of_cursor(after)
        with reading(self.database, selector(self.tables), verifies=False) as log:
            extent = log.confirm(place)
            changes, at = log.waiting(place.position)
        return Backlog(extent.head, changes, None if at is None else _EPOCH + timedelta(microseconds=at))

    def since(self, lane: Lane, moment: datetime) -> Cursor:
        """The cursor before the first change of this moment or later."""
        with self._reading() as log:
            place = log.since(moment)
        return place.to_cursor()

    def register(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> None:
        """Note the position at once, also backwards."""
        register(self.database, Registrant(pipeline, lane, owner), of_cursor(upto), self.retain)

    def registered(self, pipeline: str, lane: Lane) -> int | None:
        """The position noted in the database for this pipeline."""
        return readers.registered(self.database, pipeline, lane)

    def readers(self) -> Sequence[Reader]:
        """Every pipeline that is registered in the database."""
        return readers.everybody(self.database)

    def remarks(self) -> Sequence[str]:
        """Nothing that `readers` does not tell."""
        return ()

    def settle(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> Settlement:
        """Note the position and prune, when that disturbs nobody."""
        return settle(self.database, Registrant(pipeline, lane, owner), of_cursor(upto), self.retain)

    def forget(self, pipeline: str, owner: Owner | None = None) -> bool:
        """Strike a pipeline off the list in the database, or hand it over."""
        return readers.forget(self.database, pipeline, owner)

    def renew(self) -> None:
        """Begin a new life of the log, after a person has decided how to go on with a rewound one."""
        renew(self.database)

    def _reading(self) -> AbstractContextManager[Log]:
        return reading(self.database, selector(self.tables), self._choice, heals=self.heal)

    @property
    def _choice(self) -> Choice:
        return Choice(self.columns, self.row_ids_only)
