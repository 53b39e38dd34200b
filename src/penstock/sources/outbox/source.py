"""The outbox of a Postgres database as a source of changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
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
from penstock.source import Backlog, Reader, Rowless, Settlement, Span, Window
from penstock.sources.outbox import readers, schema
from penstock.sources.outbox.follow import follow
from penstock.sources.outbox.log import Log, reading
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.place import Place, of_cursor
from penstock.sources.outbox.settle import register, settle
from penstock.sources.outbox.survey import survey
from penstock.sources.retain import Registrant, Retain

LANE = Lane("outbox")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@settings
class OutboxSource(Rowless):
    """The messages that applications have stashed in an outbox; one lane, positions count them in the order of delivery."""

    database: str = field(repr=False)
    table: str = "outbox"
    reader: Literal["snapshot", "mark"] = "snapshot"
    start: Literal["beginning", "now"] = "beginning"
    notify: bool = False
    retain: Retain = Retain()
    max_row: Size | None = None
    is_own, gives_messages = False, True

    def __post_init__(self) -> None:
        Names(self.table)
        if self.reader == "mark":
            raise ValueError("a table that is read by marks is a MarkSource")
        if not self.database.startswith(("postgresql://", "postgres://")):
            raise ValueError("source.database must be a DSN of Postgres: postgresql://user@host/database")

    def lanes(self) -> Sequence[Lane]:
        """One lane: the outbox."""
        return (LANE,)

    def begin(self, lane: Lane, start: str) -> Cursor:
        """The cursor at a word or a position."""
        with self._reading() as log:
            if start == "now":
                return log.head().to_cursor()
            if start == "beginning":
                life = log.life()
                return Place(life.incarnation, life.pruned).to_cursor()
            return log.place(_number(start)).to_cursor()

    def head(self, lane: Lane) -> Cursor:
        """The cursor behind the last message that is committed."""
        return self.begin(lane, "now")

    def position(self, cursor: Cursor) -> int:
        """How many messages came before the cursor, since the outbox was made."""
        return of_cursor(cursor).position

    def incarnation(self, cursor: Cursor) -> str:
        """Which life of the outbox it belongs to."""
        return of_cursor(cursor).incarnation

    def behind(self, change: Change, since: Cursor) -> Cursor:
        """The cursor just behind this message."""
        return Place(of_cursor(since).incarnation, change.position, change.witness()).to_cursor()

    def split(self, span: Span, parts: int) -> Sequence[Span]:
        """Spans of about the same number of messages."""
        after, upto = of_cursor(span.after), of_cursor(span.upto)
        length = upto.position - after.position
        cuts = sorted({after.position + length * i // parts for i in range(1, parts)} - {after.position, upto.position})
        inner = [Place(upto.incarnation, cut).to_cursor() for cut in cuts]
        return [Span(span.lane, a, b) for a, b in pairwise([span.after, *inner, span.upto])] if length > 0 else []

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        """The messages of a span."""
        with self._reading() as log:
            yield from log.between(of_cursor(span.after), of_cursor(span.upto))

    def follow(self, lane: Lane, after: Cursor) -> Iterator[Window]:
        """Messages from here on."""
        return follow(self.database, self._names, of_cursor(after), self.notify)

    def backlog(self, lane: Lane, after: Cursor) -> Backlog:
        """How much waits behind this cursor; nothing is recorded for that."""
        place = of_cursor(after)
        with self._reading() as log:
            log.confirm(place)
            end, (fresh, at) = log.windows.tip().end, log.windows.waiting()
            if end > place.position and (first := log.at(place.position + 1)):
                at = _EPOCH + timedelta(microseconds=first.at)
        return Backlog(end + fresh, end + fresh - place.position, at)

    def since(self, lane: Lane, moment: datetime) -> Cursor:
        """The cursor before the first message of this moment or later."""
        with self._reading() as log:
            return log.since(moment).to_cursor()

    def register(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> None:
        """Note the position at once, also backwards."""
        register(self.database, self._names, Registrant(pipeline, lane, owner), of_cursor(upto), self.retain)

    def registered(self, pipeline: str, lane: Lane) -> int | None:
        """The position noted beside the outbox for this pipeline."""
        with self._reading() as log:
            known = readers.load(log.connection, self._names)
        return next((one.position for one in known if one.name == (pipeline, lane)), None)

    def readers(self) -> Sequence[Reader]:
        """Every pipeline that is registered beside the outbox."""
        with self._reading() as log:
            known, head = readers.load(log.connection, self._names), log.windows.tip().end
        return [readers.shown(one, known, head) for one in known]

    def remarks(self) -> Sequence[str]:
        """Who keeps Postgres from reusing the space of settled messages."""
        holders = survey(self.database, self._names).holders
        return [f"{one.who} keeps vacuum from reusing the space of settled messages: {one.remedy}" for one in holders]

    def settle(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> Settlement:
        """Note the position and purge."""
        return settle(self.database, self._names, Registrant(pipeline, lane, owner), of_cursor(upto), self.retain)

    def forget(self, pipeline: str, owner: Owner | None = None) -> bool:
        """Strike a pipeline off the list beside the outbox, or hand it over."""
        with self._reading() as log:
            return readers.forget(log.connection, self._names, pipeline, owner)

    def renew(self) -> None:
        """Begin a new life of the outbox, after a person has decided how to go on with one that was restored."""
        schema.renew(self.database, self._names)

    def _reading(self) -> AbstractContextManager[Log]:
        return reading(self.database, self._names)

    @property
    def _names(self) -> Names:
        return Names(self.table)


def _number(start: str) -> int:
    try:
        return int(start)
    except ValueError:
        raise ConfigInvalid(f"{start!r} is no place to start at", "choose beginning, now or a position") from None
