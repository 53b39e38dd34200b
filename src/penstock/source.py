"""The contract of a source. Implementations are in `sources/`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, NewType, Protocol

import pyarrow as pa

from penstock.change import Change, Lane
from penstock.cursor import Cursor, Watermark
from penstock.errors import ConfigInvalid
from penstock.owner import Owner
from penstock.text.size import Bytes


@dataclass(frozen=True, slots=True)
class Window:
    """The changes of a lane that one read returns.

    `upto` is set if the window is whole: it ends on a commit, and no change at or below it is still to come.
    `idle`: no change waits after it, so that these must not wait for others.
    """

    changes: pa.RecordBatch
    upto: Cursor | None
    idle: bool


@dataclass(frozen=True, slots=True)
class Span:
    """The changes of a lane between two cursors: `after` exclusive, `upto` inclusive."""

    lane: Lane
    after: Cursor
    upto: Cursor


@dataclass(frozen=True, slots=True)
class Backlog:
    """The position of the head, or of another end, and the number of changes from a cursor up to it; None if unknown."""

    head: int
    changes: int | None
    oldest_at: datetime | None


GONE = 900.0
"""Seconds without a note after which a pipeline counts as gone: three times the longest that a living one is silent."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A pipeline that is registered in a source.

    `silent`: seconds since its last contact. `kept`: the number of changes kept for it alone. `is_gone`: its last contact is too
    old for a pipeline that runs. `is_released`: it was gone for too long, and no change is kept for it. `owner`: its state.
    """

    pipeline: str
    position: int
    silent: float
    kept: int
    is_gone: bool
    is_released: bool
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """The effect of a settle: changes pruned, readers released, and readers `overdue`: gone for too long, but not released.

    `is_put_off`: nothing was written, to spare a busy database, so that a failure to write would not show.
    """

    pruned: int = 0
    released: Sequence[Reader] = ()
    overdue: Sequence[Reader] = ()
    is_put_off: bool = False


class Stamp(NamedTuple):
    """The identity of a reader: the epoch of its term, and the attempt of its task."""

    epoch: int
    attempt: int


ANONYMOUS = Stamp(0, 0)
"""A reader without a term, which leases no rows."""


class Snapshot(Protocol):
    """The rows that a database had before its log, which are delivered first.

    They come in ranges, each a lane. Every row is in exactly one range, and the stream after them omits the changes that the
    ranges include: none is missing, and none is delivered twice.
    """

    def ranges(self, cursor: Cursor) -> Mapping[Lane, Cursor]:
        """The ranges of rows to deliver before the stream continues from this cursor; usually none."""

    def rows(self, cursor: Cursor, *, again: bool) -> Iterator[Window]:
        """The rows of a range, as `refresh`; only the last window is whole.

        `again`: an earlier attempt may have delivered some rows, so that those deleted since come as `delete`.
        """

    def remaining(self, ranges: Sequence[Cursor]) -> Backlog:
        """The number of rows in these ranges, if it is known without reading them, and the time of the snapshot."""

    def joined(self, cursor: Cursor, ends: Sequence[Cursor]) -> Cursor:
        """The cursor from which the stream continues after its ranges, given their last cursors."""


class Retention(Protocol):
    """The registrations of pipelines, and the changes that a source keeps for them.

    - `settle` is idempotent and the only call that deletes changes. It keeps all changes that a registered pipeline needs, unless
      the pipeline has been gone for longer than the settings of the source permit. That pipeline then raises SourcePruned.
    - A registration belongs to the owner that registered it. `register` and `settle` of another owner raise SourceOwned and change
      nothing, in the same transaction. The next owner adopts a registration that has no owner, or was released.
    """

    def register(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> None:
        """Record the cursor of a pipeline, also backward: the changes after it are kept. Raises SourcePruned, SourceOwned."""

    def registered(self, pipeline: str, lane: Lane) -> int | None:
        """The recorded position of a pipeline; None if it is not registered."""

    def readers(self) -> Sequence[Reader]:
        """The registered pipelines."""

    def remarks(self) -> Sequence[str]:
        """The obstacles to deleting settled changes, for the status of a pipeline."""

    def settle(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> Settlement:
        """Record that a pipeline runs and needs no change below `upto`, and delete some changes. Raises SourceOwned."""

    def forget(self, pipeline: str, owner: Owner | None = None) -> bool:
        """Remove a registration; False if there was none. That of another owner is handed over to `owner` instead, if given."""


class Seek(Protocol):
    """The places at which an operator can continue a pipeline."""

    def since(self, lane: Lane, moment: datetime) -> Cursor:
        """The cursor before the first change made at this moment or later. Raises ConfigInvalid if that may be gone already."""

    def renew(self) -> None:
        """Begin a new incarnation, after an operator has chosen the place at which to continue in a rewound source."""


RowName = NewType("RowName", int)
"""The name of a leased row, which only the source interprets; names grow in the order of reading."""


class RowLease(Protocol):
    """The rows that one attempt has leased in a source.

    - No call changes a row that another attempt has leased: a late call of a deposed holder does not affect its successor.
    - `purge` and `reset` are durable when they return. A deleted row counts as done.
    - Every call raises TermLost once a later attempt has leased one of these rows, and SourceUnavailable.
    """

    def cursor(self, since: Cursor) -> Cursor:
        """A cursor with the same position for this attempt, for `cursor_after` of its rows."""

    def name(self, change: Change) -> RowName:
        """The name of the row of a change."""

    def purge(self, rows: Sequence[RowName]) -> None:
        """Delete delivered rows."""

    def reset(self, rows: Sequence[RowName]) -> None:
        """Return rows, which are then leased and read again."""

    def confirm(self, rows: Sequence[RowName]) -> None:
        """Check that this attempt still holds these rows."""

    def close(self) -> None:
        """Disconnect."""


class RowLeases(Protocol):
    """The leases of a source with a single pipeline, which leases each row that it reads.

    The rows that a predecessor leased and did not deliver come first, at the same positions. `open` and `read` of the source
    raise TermLost if there is a successor.
    """

    def target(self, lane: Lane) -> Cursor:
        """A target of a batch: a reader that reaches it has read all rows that exist now."""

    def leased(self, lane: Lane, after: Cursor) -> Iterator[pa.RecordBatch]:
        """The changes after a cursor that an attempt leased and did not deliver; writes nothing."""

    def open(self, reader: Stamp) -> RowLease:
        """The lease of an attempt."""


class Following(Protocol):
    """A growing lane, read from a cursor on: every change once, in order."""

    def poll(self, wait: float) -> Window | None:
        """The next changes, or after `wait` seconds None, or an empty window if only its cursor is new.

        None may follow a part of a window; the cursor before that part is then no place to continue from. A poll without a wait
        looks for changes, unless the previous look put too much load on the database.
        """

    def close(self) -> None:
        """Disconnect."""


class Source(Protocol):
    """Frozen settings; every method opens its own resources, so that a source can be pickled to a worker.

    - Positions of one lane grow in commit order; within an incarnation a position names one change. Positions are compared and
      never subtracted: `backlog` counts changes.
    - `head` ends on a commit and never goes back. `read` returns the same changes for the same span every time.
    - The spans of a `split` are disjoint, in order, and cover the whole span.
    - A source that does not continue at a cursor (damaged, replaced, rewound) raises; it never skips changes.
    - Optional parts that a source does not have are None.
    - A class that inherits from this declares only the optional parts that it has.
    """

    @property
    def start(self) -> str:
        """The start of a new pipeline, as the pipeline file names it."""
        return "beginning"

    @property
    def gives_messages(self) -> bool:
        """Whether its changes are messages (penstock.message), not rows."""
        return False

    @property
    def snapshot(self) -> Snapshot | None:
        """The rows that existed before the log."""
        return None

    @property
    def retention(self) -> Retention | None:
        """The registrations of pipelines, and the deletion of settled changes."""
        return None

    @property
    def seek(self) -> Seek | None:
        """Places to continue from, in addition to the start and a position."""
        return None

    @property
    def row_lease(self) -> RowLeases | None:
        """The leases of a source with a single pipeline."""
        return None

    @property
    def max_row(self) -> Bytes | None:
        """The bytes of the largest change to deliver; None: as large as the engine can carry."""
        return None

    def lanes(self) -> Sequence[Lane]:
        """The lanes of this source, one Spark task each; the engine calls this repeatedly while a pipeline runs.

        A new lane is read from its `beginning`. A lane that has ended is listed until all registered pipelines have settled its
        end.
        """

    def end(self, lane: Lane) -> Cursor | None:
        """The cursor after the last change of a lane that has ended; None while changes may come."""
        return None

    def begin(self, lane: Lane, start: str) -> Cursor:
        """The cursor at `beginning`, `now`, `snapshot` or a position, for a pipeline without a watermark."""

    def head(self, lane: Lane) -> Cursor:
        """The cursor after the last committed change."""

    def position(self, cursor: Cursor) -> int:
        """The position of a cursor. Raises CursorInvalid."""

    def incarnation(self, cursor: Cursor) -> str:
        """The incarnation of a cursor; positions of different incarnations are not comparable."""

    def cursor_after(self, change: Change, since: Cursor) -> Cursor:
        """The cursor immediately after `change`, which was read after `since`."""

    def split(self, span: Span, parts: int) -> Sequence[Span]:
        """Cut a span into at most `parts` spans."""
        return (span,)

    def read(self, span: Span, reader: Stamp) -> Iterator[pa.RecordBatch]:
        """The changes of a span, in order; a source that leases rows may return some after its end."""

    def open(self, lane: Lane, after: Cursor, reader: Stamp) -> Following:
        """Follow a lane from a cursor on; `penstock.following` has the loop."""

    def backlog(self, lane: Lane, after: Cursor, upto: Cursor | None = None, most: int | None = None) -> Backlog:
        """The number of changes after a cursor, up to another one or the head; the count ends at `most`.

        With a small `most` the count is quick, whatever the backlog: Spark waits for it as it plans a micro-batch.
        """


def at_most(changes: int, most: int | None) -> int:
    """A count, limited by `most`."""
    return changes if most is None else min(changes, most)


def ranges_at(source: Source, cursor: Cursor) -> Mapping[Lane, Cursor]:
    """The ranges of rows to deliver before the stream continues from a cursor; none without a snapshot."""
    return source.snapshot.ranges(cursor) if source.snapshot else {}


def undelivered(source: Source, ranges: Mapping[Lane, Cursor], marks: Mapping[Lane, Watermark]) -> dict[Lane, Cursor]:
    """The ranges, given by their beginnings, whose rows are not yet delivered."""
    return {lane: begin for lane, begin in ranges.items() if lane not in marks or marks[lane].position <= source.position(begin)}


def readers_of(source: Source) -> Sequence[Reader]:
    """The registered pipelines; none if the source registers none."""
    return source.retention.readers() if source.retention else ()


def count(source: Source, span: Span, most: int | None = None) -> int | None:
    """The number of changes in a span, at most `most`; None if it is unknown."""
    return source.backlog(span.lane, span.after, span.upto, most).changes


def since(source: Source, lane: Lane, moment: datetime) -> Cursor:
    """The cursor before the first change made at this moment or later. Raises ConfigInvalid if that may be gone already."""
    if source.seek:
        return source.seek.since(lane, moment)
    if source.row_lease:
        raise ConfigInvalid(
            "a table with reader mark keeps no delivered messages",
            "reader mark sends and purges all rows of the table: delete rows that must not be sent",
        )
    raise ConfigInvalid("the source keeps no delivered changes, so that a pipeline cannot continue at a time", "name a position")
