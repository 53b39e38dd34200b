"""The optional parts of the source: a snapshot, registered pipelines, and places to continue from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime

from penstock.change import Lane
from penstock.cursor import Cursor
from penstock.owner import Owner
from penstock.source import Backlog, Reader, Settlement, Window
from penstock.sources.one_lane import moment
from penstock.sources.retain import Registrant, Retain
from penstock.sources.sqlite import readers
from penstock.sources.sqlite.image import Choice
from penstock.sources.sqlite.install import renew
from penstock.sources.sqlite.log import Log
from penstock.sources.sqlite.point import any_place, of_cursor
from penstock.sources.sqlite.ranges import RangePoint
from penstock.sources.sqlite.settle import register, settle
from penstock.sources.sqlite.snapshot import read, remaining

Opened = Callable[[], AbstractContextManager[Log]]


@dataclass(frozen=True, slots=True)
class SqliteSnapshot:
    """The rows of the captured tables."""

    database: str
    reading: Opened
    choice: Choice

    def ranges(self, cursor: Cursor) -> Mapping[Lane, Cursor]:
        """The ranges of rows to read before the log."""
        return {Lane(f"snapshot:{place.number}"): place.to_cursor() for place in of_cursor(cursor).pending()}

    def rows(self, cursor: Cursor, *, again: bool) -> Iterator[Window]:
        """The present rows of a range."""
        place = any_place(cursor)
        assert isinstance(place, RangePoint)
        with self.reading() as log:
            log.extent()  # heals, if the settings allow it
        return read(self.database, place, self.choice, again=again)

    def remaining(self, ranges: Sequence[Cursor]) -> Backlog:
        """The rows of these ranges; their age is that of the plan."""
        places = [place for place in map(any_place, ranges) if isinstance(place, RangePoint)]
        at = min((place.planned_at for place in places), default=None)
        return Backlog(max((place.since for place in places), default=0), remaining(self.database, places), moment(at))

    def joined(self, cursor: Cursor, ends: Sequence[Cursor]) -> Cursor:
        """The cursor of the log after ranges that ended with these cursors."""
        read = [place for place in map(any_place, ends) if isinstance(place, RangePoint)]
        return of_cursor(cursor).joined(read).to_cursor()


@dataclass(frozen=True, slots=True)
class SqliteRetention:
    """The registered pipelines of a database, and the pruning of its log."""

    database: str
    retain: Retain

    def register(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> None:
        """Record the position at once, also an earlier one."""
        register(self.database, Registrant(pipeline, lane, owner), of_cursor(upto), self.retain)

    def registered(self, pipeline: str, lane: Lane) -> int | None:
        """The position recorded for this pipeline."""
        return readers.registered(self.database, pipeline, lane)

    def readers(self) -> Sequence[Reader]:
        """All registered pipelines."""
        return readers.everybody(self.database)

    def remarks(self) -> Sequence[str]:
        """None."""
        return ()

    def settle(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> Settlement:
        """Record the position and prune, at a time that disturbs no writer."""
        return settle(self.database, Registrant(pipeline, lane, owner), of_cursor(upto), self.retain)

    def forget(self, pipeline: str, owner: Owner | None = None) -> bool:
        """Remove a registration, or hand it over."""
        return readers.forget(self.database, pipeline, owner)


@dataclass(frozen=True, slots=True)
class SqliteSeek:
    """Times in the log, and its next incarnation."""

    database: str
    reading: Opened

    def since(self, lane: Lane, moment: datetime) -> Cursor:
        """The cursor before the first change of this time or later."""
        with self.reading() as log:
            return log.since(moment).to_cursor()

    def renew(self) -> None:
        """Begin a new incarnation of a rewound log, once an operator has chosen where to continue."""
        renew(self.database)
