"""The optional parts of the source: rows before the log, registered pipelines, and places to go on from."""

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
from penstock.sources.sqlite.place import any_place, of_cursor
from penstock.sources.sqlite.ranges import RangePlace
from penstock.sources.sqlite.remaining import remaining
from penstock.sources.sqlite.settle import register, settle
from penstock.sources.sqlite.snapshot import read

Opened = Callable[[], AbstractContextManager[Log]]


@dataclass(frozen=True, slots=True)
class SqliteSnapshot:
    """The rows of the captured tables."""

    database: str
    reading: Opened
    choice: Choice

    def ranges(self, cursor: Cursor) -> Mapping[Lane, Cursor]:
        """The ranges of rows that go before the log from this cursor on."""
        return {Lane(f"snapshot:{place.number}"): place.to_cursor() for place in of_cursor(cursor).pending()}

    def rows(self, cursor: Cursor, *, again: bool) -> Iterator[Window]:
        """The rows of a range, as they are now."""
        place = any_place(cursor)
        assert isinstance(place, RangePlace)
        with self.reading() as log:
            log.extent()  # heals, where that is allowed
        return read(self.database, place, self.choice, again=again)

    def remaining(self, ranges: Sequence[Cursor]) -> Backlog:
        """The rows that these ranges hold, all of them as old as the plan."""
        places = [place for place in map(any_place, ranges) if isinstance(place, RangePlace)]
        at = min((place.planned_at for place in places), default=None)
        return Backlog(max((place.since for place in places), default=0), remaining(self.database, places), moment(at))

    def joined(self, cursor: Cursor, ends: Sequence[Cursor]) -> Cursor:
        """The cursor after the ranges that ended so: the log from where it stood before them."""
        read = [place for place in map(any_place, ends) if isinstance(place, RangePlace)]
        return of_cursor(cursor).joined(read).to_cursor()


@dataclass(frozen=True, slots=True)
class SqliteRetention:
    """The pipelines that are registered in the database, and the pruning of its log."""

    database: str
    retain: Retain

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
        """Nothing beside `readers`."""
        return ()

    def settle(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> Settlement:
        """Note the position and prune, when that disturbs no writer."""
        return settle(self.database, Registrant(pipeline, lane, owner), of_cursor(upto), self.retain)

    def forget(self, pipeline: str, owner: Owner | None = None) -> bool:
        """Remove a pipeline from the list in the database, or hand it over."""
        return readers.forget(self.database, pipeline, owner)


@dataclass(frozen=True, slots=True)
class SqliteSeek:
    """Moments of the log, and its next incarnation."""

    database: str
    reading: Opened

    def since(self, lane: Lane, moment: datetime) -> Cursor:
        """The cursor before the first change of this moment or later."""
        with self.reading() as log:
            return log.since(moment).to_cursor()

    def renew(self) -> None:
        """Begin a new incarnation of the log, after a person has decided how to go on with a rewound one."""
        renew(self.database)
