"""The optional parts of the source: registered pipelines, and places to continue from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from penstock.change import Lane
from penstock.cursor import Cursor
from penstock.owner import Owner
from penstock.source import Reader, Settlement
from penstock.sources.outbox import readers, schema
from penstock.sources.outbox.log import reading
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.point import of_cursor
from penstock.sources.outbox.settle import register, settle
from penstock.sources.outbox.survey import survey
from penstock.sources.retain import Registrant, Retain


@dataclass(frozen=True, slots=True)
class OutboxRetention:
    """The pipelines that are registered in the outbox, and the purging of its messages."""

    database: str = field(repr=False)
    names: Names
    retain: Retain

    def register(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> None:
        """Record the position at once, also an earlier one."""
        register(self.database, self.names, Registrant(pipeline, lane, owner), of_cursor(upto), self.retain)

    def registered(self, pipeline: str, lane: Lane) -> int | None:
        """The position recorded for this pipeline."""
        with reading(self.database, self.names) as log:
            known = readers.load(log.connection, self.names)
        return next((one.position for one in known if one.name == (pipeline, lane)), None)

    def readers(self) -> Sequence[Reader]:
        """All registered pipelines."""
        with reading(self.database, self.names) as log:
            known, head = readers.load(log.connection, self.names), log.windows.tip().end
        return [one.shown(known, head) for one in known]

    def remarks(self) -> Sequence[str]:
        """The sessions that keep Postgres from reusing the space of settled messages."""
        holders = survey(self.database, self.names).holders
        return [f"{one.who} keeps vacuum from reusing the space of settled messages: {one.remedy}" for one in holders]

    def settle(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> Settlement:
        """Record the position and purge."""
        return settle(self.database, self.names, Registrant(pipeline, lane, owner), of_cursor(upto), self.retain)

    def forget(self, pipeline: str, owner: Owner | None = None) -> bool:
        """Remove a registration, or hand it over."""
        with reading(self.database, self.names) as log:
            return readers.forget(log.connection, self.names, pipeline, owner)


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
