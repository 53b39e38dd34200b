"""An outbox for its readers: an incarnation, a chain of windows, and places in it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from penstock.change import Change, Op
from penstock.errors import ConfigInvalid, LogDamaged, OutboxMissing, SourcePruned, SourceRewound
from penstock.sources.outbox import sequence
from penstock.sources.outbox.database import Connection, connected
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.point import Point
from penstock.sources.outbox.rows import Row, to_changes
from penstock.sources.outbox.window import RecordedWindow, RecordedWindows, pruned
from penstock.text.dsn import shown

_SEEN = ("position", "op", "table", "key", "at")

_WAY_ON = "choose where to continue: penstock run FILE --from beginning sends all messages of the outbox, --from now none of them"


@dataclass(frozen=True, slots=True)
class Life:
    """The incarnation of an outbox, whether this cluster began it, and the position up to which it is purged."""

    incarnation: str
    pruned: int
    pruned_at: datetime | None
    is_native: bool
    has_strangers: bool  # rows with transaction ids that this cluster has not reached


class Log:
    """One outbox over one connection."""

    def __init__(self, dsn: str, names: Names, connection: Connection) -> None:
        self._dsn, self._names, self.connection = dsn, names, connection
        self.windows = RecordedWindows(connection, names)

    def life(self) -> Life:
        """The current incarnation. Raises SourceRewound if the outbox was restored into another cluster."""
        life = self.any_life()
        if not life.is_native or life.has_strangers:
            raise self._rewound("it holds transaction ids of another cluster")
        return life

    def any_life(self) -> Life:
        """The current incarnation, also in another cluster."""
        found = self.connection.execute(
            "select incarnation, pruned, pruned_at, system = (select system_identifier from pg_control_system())"
            f"  and pg_snapshot_xmax((select upto from {self._names.window} order by number desc limit 1))"
            "    <= pg_snapshot_xmax(pg_current_snapshot()),"
            f" exists (select from {self._names.rows} where xid >= pg_snapshot_xmax(pg_current_snapshot()))"
            f" from {self._names.life} order by number desc limit 1".encode()
        ).fetchone()
        if found is None:
            raise OutboxMissing(f"the outbox {self._names.table} in {shown(self._dsn)} has no incarnation", self._names.init())
        return Life(*found)

    def confirm(self, place: Point) -> Life:
        """Check that the outbox continues at a place. Raises SourceRewound, SourcePruned."""
        life = self.lives(place.incarnation)
        end = self.windows.tip().end
        if place.position > end:
            raise self._rewound(f"it ends at {end}, and the watermark is {place.position}")
        if place.position < life.pruned:
            raise pruned(self._names, place.position)
        if not place.checksum or place.position == life.pruned:
            return life
        checksum = self._checksum(place.position)
        if checksum is None:
            return self.confirm(place)
        if checksum != place.checksum:
            raise self._rewound(f"it has another message at {place.position}")
        return life

    def lives(self, incarnation: str) -> Life:
        """Check the incarnation, and that ids define the order. Raises SourceRewound, OutboxUnfit."""
        sequence.confirm(self.connection, self._names)
        life = self.life()
        if life.incarnation != incarnation:
            raise self._rewound("its incarnation differs from that of the watermark")
        return life

    def at(self, position: int) -> Change | None:
        """The message at a position."""
        for rows in self.windows.pages(self.windows.at(position - 1), position - 1, page=1):
            return last_of(to_changes(rows, position - 1))
        return None

    def since(self, moment: datetime) -> Point:
        """The place before the first window that may hold a message of this moment or later. Raises ConfigInvalid."""
        head, life = self.head(), self.life()
        if life.pruned_at and moment <= life.pruned_at:
            raise ConfigInvalid(
                f"messages of {moment:%Y-%m-%d %H:%M:%S} may have been purged already",
                f"choose a moment after {life.pruned_at:%Y-%m-%d %H:%M:%S %Z}; retain.history keeps more",
            )
        window = self.windows.since(moment)
        return Point(life.incarnation, max(window.after, life.pruned)) if window else head

    def head(self) -> Point:
        """The place after all committed messages; this records a window of the new ones. Raises OutboxUnfit."""
        sequence.confirm(self.connection, self._names)
        life, tip, known = self.life(), self.windows.tip(), -1
        while tip.number != known:  # another reader may record at the same time, from an earlier snapshot
            known = tip.number
            if made := self.windows.advance(life.incarnation, known):
                return Point(life.incarnation, made[-1][0].end)
            tip = self.windows.tip()
        return Point(life.incarnation, tip.end)

    def place(self, position: int) -> Point:
        """The place after this position. Raises ConfigInvalid if there is none."""
        life, end = self.life(), self.head().position
        if not life.pruned <= position <= end:
            raise ConfigInvalid(f"the outbox has no message {position}", f"choose a position from {life.pruned} to {end}")
        checksum = self._checksum(position) if position > life.pruned else ""
        return self.place(position) if checksum is None else Point(life.incarnation, position, checksum)

    def read(self, window: RecordedWindow, position: int, found: Sequence[Row] = ()) -> Generator[pa.RecordBatch, None, None]:
        """The changes of a window after a position, from these rows or the table. Raises LogDamaged if some are missing."""
        if position < window.after:  # the windows before it were purged meanwhile
            raise pruned(self._names, position)
        for rows in [found] if found else self.windows.pages(window, position):
            batch = to_changes(rows, position)
            position += len(rows)
            yield batch
        if position < window.end:
            if self.any_life().pruned > position:
                raise pruned(self._names, position)
            missing, table = window.end - position, self._names.table
            raise LogDamaged(
                f"{missing} messages before position {window.end} were deleted from {table} by another program",
                f"they are lost; continue after them: penstock run FILE --from {window.end}",
            )

    def between(self, place: Point, upto: Point) -> Iterator[pa.RecordBatch]:
        """The changes after one place, up to another."""
        self.confirm(place)
        self.confirm(upto)
        position = place.position
        while position < upto.position:
            window = self.windows.at(position)
            for batch in self.read(window, position):
                wanted = min(batch.num_rows, upto.position - position)
                position += wanted
                yield batch.slice(0, wanted)
                if position == upto.position:
                    return

    def _checksum(self, position: int) -> str | None:
        """The checksum of the message at a position; None if the message was purged after the caller read the life."""
        try:
            found = self.at(position)
        except SourcePruned:
            return None
        return found.checksum() if found else ""

    def _rewound(self, why: str) -> SourceRewound:
        return SourceRewound(f"the outbox {self._names.table} in {shown(self._dsn)} was restored or replaced: {why}", _WAY_ON)


@contextmanager
def reading(dsn: str, names: Names, *, anew: bool = False) -> Iterator[Log]:
    """An outbox over a connection."""
    with connected(dsn, names, anew=anew) as connection:
        yield Log(dsn, names, connection)


def place_after(change: Change, incarnation: str) -> Point:
    """The place immediately after a change."""
    return Point(incarnation, change.position, change.checksum())


def last_of(batch: pa.RecordBatch) -> Change:
    """The last change of a batch without its images, which a place does not need: that takes a fifth of the time."""
    position, op, table, key, at = (batch.column(name)[batch.num_rows - 1] for name in _SEEN)
    return Change(position.as_py(), Op(op.as_py()), table.as_py(), key.as_py(), at=at.value)
