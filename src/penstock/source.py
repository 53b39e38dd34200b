"""What a source of changes must do. Implementations are in `sources/`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, NewType, Protocol

import pyarrow as pa

from penstock.change import Change, Lane
from penstock.cursor import Cursor
from penstock.errors import ConfigInvalid
from penstock.owner import Owner
from penstock.size import Bytes


@dataclass(frozen=True, slots=True)
class Window:
    """A piece of a lane as it is followed.

    `upto` is set when the window is whole: it ends on a commit, and nothing at or below it is still to come.
    `idle` says that no more changes wait after it, so that these should be pushed on at once.
    """

    changes: pa.RecordBatch
    upto: Cursor | None
    idle: bool


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a lane between two cursors: `after` exclusive, `upto` inclusive."""

    lane: Lane
    after: Cursor
    upto: Cursor


@dataclass(frozen=True, slots=True)
class Backlog:
    """The changes between a cursor and the head, or another cursor: its position, and how many; None where that is unknown."""

    head: int
    changes: int | None
    oldest_at: datetime | None


GONE = 900.0
"""Seconds without a note after which a pipeline counts as gone: three times the longest that a living one is silent."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A pipeline that is registered with a source.

    `silent`: seconds since it was last noted. `kept`: changes that are kept for it alone. `is_gone`: it was not noted for so long
    that it cannot be at work. `is_released`: it was gone for too long, and nothing is kept for it any more. `owner`: the state to
    which it belongs.
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
    """What settling did: changes pruned, readers released; and readers that are gone for too long but still waited for.

    `is_put_off`: nothing was written, because now is no good time; so it is not known whether it could be.
    """

    pruned: int = 0
    released: Sequence[Reader] = ()
    overdue: Sequence[Reader] = ()
    is_put_off: bool = False


class Stamp(NamedTuple):
    """The identity of a reader: the epoch of its term, and the attempt of its task under it."""

    epoch: int
    attempt: int


ANONYMOUS = Stamp(0, 0)
"""Reads without a term: it leases nothing."""


class Snapshot(Protocol):
    """The rows that a database had before its log; they are delivered first.

    They come in ranges, each a lane of its own. Every row is in one range only, and the stream after them leaves out the changes
    that the ranges include: nothing is missing, nothing is delivered twice.
    """

    def ranges(self, cursor: Cursor) -> Mapping[Lane, Cursor]:
        """The ranges of rows that must be delivered before the stream can go on from this cursor; mostly none."""

    def rows(self, cursor: Cursor, *, again: bool) -> Iterator[Window]:
        """The rows of a range, as `refresh`; only the last window is whole.

        Again: an earlier attempt may have delivered some, so those that have been removed since come as `delete`.
        """

    def remaining(self, ranges: Sequence[Cursor]) -> Backlog:
        """How many rows these ranges still hold, as far as that is known without reading them; and when they were cut."""

    def joined(self, cursor: Cursor, ends: Sequence[Cursor]) -> Cursor:
        """The cursor from which the stream goes on, now that its ranges were delivered and ended with these."""


class Retention(Protocol):
    """How long a source keeps changes, and for which pipelines.

    - `settle` is idempotent and the only call that deletes; it keeps everything that any registered pipeline still needs, unless
      the pipeline is gone and the source's own settings say that it is not waited for any longer. Then it finds no way on.
    - A registration belongs to the owner that registered it. `register` and `settle` of any other raise SourceOwned and change
      nothing, in the same transaction. One without an owner belongs to the next that comes, and so does one that was released.
    """

    def register(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> None:
        """Note at once the cursor of a pipeline, also backwards: the changes after it stay. Raises SourcePruned, SourceOwned."""

    def registered(self, pipeline: str, lane: Lane) -> int | None:
        """The position that is noted for this pipeline; None if it was never registered."""

    def readers(self) -> Sequence[Reader]:
        """Every pipeline that is registered."""

    def remarks(self) -> Sequence[str]:
        """What hinders the source from deleting settled changes, for a person who looks at a pipeline."""

    def settle(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> Settlement:
        """Note that this pipeline lives and needs nothing below `upto` again, and delete a little. Raises SourceOwned."""

    def forget(self, pipeline: str, owner: Owner | None = None) -> bool:
        """Remove a registration; False if there was none.

        With an owner, a registration of another one is handed over to it instead: it stays where it is.
        """


class Seek(Protocol):
    """Where a person says that a pipeline goes on."""

    def since(self, lane: Lane, moment: datetime) -> Cursor:
        """The cursor before the first change made at this moment or later. Raises ConfigInvalid if that may be gone already."""

    def renew(self) -> None:
        """Begin a new incarnation, once a person has decided where to go on in a source that was rewound."""


RowName = NewType("RowName", int)
"""The name of a leased row, which only the source interprets; names grow in the order in which the source reads its rows."""


class RowLease(Protocol):
    """The rows that one attempt has leased in a source, by the names that the lease gives them.

    - No call touches a row that bears another mark: a late call of a deposed holder has no effect on its successor.
    - `purge` and `reset` are durable when they return. A row that was deleted counts as done.
    - Every call raises TermLost once a later attempt has leased one of these rows, and SourceUnavailable.
    """

    def cursor(self, since: Cursor) -> Cursor:
        """The same position for this attempt: cursors after its rows are made from it."""

    def name(self, change: Change) -> RowName:
        """The name of the row that a change was made of."""

    def purge(self, rows: Sequence[RowName]) -> None:
        """Delete these: they are delivered."""

    def reset(self, rows: Sequence[RowName]) -> None:
        """Give these back: they are leased, and read, once more."""

    def confirm(self, rows: Sequence[RowName]) -> None:
        """Prove that this attempt still holds these."""

    def close(self) -> None:
        """Disconnect."""


class RowLeases(Protocol):
    """The leases of a source that one pipeline has for itself: to read a row is to lease it.

    The rows that a predecessor has leased and not delivered come first, at the same positions. `open` and `read` of the source
    raise TermLost if there is a successor.
    """

    def target(self, lane: Lane) -> Cursor:
        """Where a batch may end: a reader that gets there has read all rows that existed when this was asked."""

    def leased(self, lane: Lane, after: Cursor) -> Iterator[pa.RecordBatch]:
        """Changes after a cursor that an attempt has leased and not delivered; nothing is written."""

    def open(self, reader: Stamp) -> RowLease:
        """The rows of this attempt."""


class Following(Protocol):
    """A lane from a cursor on, as it grows: every change once, in order."""

    def poll(self, wait: float) -> Window | None:
        """The next changes, at once if there are any; after so many seconds None, or an empty window where only its cursor is new.

        A window that comes in pieces may be followed by None: the cursor before it is not one to go on from, then.

        A poll without a wait looks for changes, unless the last look has put too much load on the database.
        """

    def close(self) -> None:
        """Disconnect."""


class Source(Protocol):
    """Frozen settings; every method opens what it needs, so that a source can be pickled to a worker.

    - Positions of one lane grow in commit order; a position names one change for as long as the source's incarnation lives. They
      are compared and never subtracted: `backlog` counts changes.
    - `head` ends on a commit and never goes back. `read` gives the same changes for the same span every time.
    - The spans of a `split` are disjoint, in order, and cover the whole span.
    - A source that no longer continues at a cursor (damaged, replaced, rewound) raises; it never skips.
    - The optional parts are None where a source does not have them. A class that inherits from this declares only the parts that
      it has.
    """

    @property
    def start(self) -> str:
        """Where a new pipeline begins: a word of the pipeline file."""
        return "beginning"

    @property
    def gives_messages(self) -> bool:
        """Whether its changes carry messages (penstock.message), not rows."""
        return False

    @property
    def snapshot(self) -> Snapshot | None:
        """The rows that were there before the log."""
        return None

    @property
    def retention(self) -> Retention | None:
        """The registrations of pipelines, and the deletion of settled changes."""
        return None

    @property
    def seek(self) -> Seek | None:
        """Other places to go on from than the start and a position."""
        return None

    @property
    def row_lease(self) -> RowLeases | None:
        """The leases of a source that one pipeline has for itself."""
        return None

    @property
    def max_row(self) -> Bytes | None:
        """The bytes of the largest change that is delivered; None: as large as the engine can carry."""
        return None

    def lanes(self) -> Sequence[Lane]:
        """The lanes of this source, each one Spark task; the engine asks again while a pipeline runs.

        A lane that appears meanwhile is read from its `beginning`. One that has ended is listed at least until all registered
        pipelines have settled its end.
        """

    def end(self, lane: Lane) -> Cursor | None:
        """The cursor after the last change of a lane that has ended, for good; None while changes may come."""
        return None

    def begin(self, lane: Lane, start: str) -> Cursor:
        """The cursor at `beginning`, `now`, `snapshot` or a position, for a pipeline without a watermark."""

    def head(self, lane: Lane) -> Cursor:
        """The cursor after the last committed change."""

    def position(self, cursor: Cursor) -> int:
        """The position of a cursor. Raises CursorInvalid."""

    def incarnation(self, cursor: Cursor) -> str:
        """The life of the source that a cursor belongs to; positions of different lives are not comparable."""

    def cursor_after(self, change: Change, since: Cursor) -> Cursor:
        """The cursor immediately after `change`, which was read from `since` on."""

    def split(self, span: Span, parts: int) -> Sequence[Span]:
        """Cut a span into at most so many."""
        return (span,)

    def read(self, span: Span, reader: Stamp) -> Iterator[pa.RecordBatch]:
        """The changes of a span in order; where rows are leased, those of its end or a little more."""

    def open(self, lane: Lane, after: Cursor, reader: Stamp) -> Following:
        """Follow a lane from this cursor on; `penstock.following` has the loop."""

    def backlog(self, lane: Lane, after: Cursor, upto: Cursor | None = None, most: int | None = None) -> Backlog:
        """How many changes wait after this cursor, up to another or the head; the count ends at `most`.

        A count of a few is quick, however many there are: it is taken while a micro-batch is planned.
        """


def at_most(changes: int, most: int | None) -> int:
    """A count that ends at `most`."""
    return changes if most is None else min(changes, most)


def ranges_at(source: Source, cursor: Cursor) -> Mapping[Lane, Cursor]:
    """The ranges of rows that come before the stream at this cursor; none where the source has no snapshot."""
    return source.snapshot.ranges(cursor) if source.snapshot else {}


def readers_of(source: Source) -> Sequence[Reader]:
    """Every pipeline that is registered; none where the source registers none."""
    return source.retention.readers() if source.retention else ()


def count(source: Source, span: Span, most: int | None = None) -> int | None:
    """How many changes a span has, or `most` if it has more; None where that is unknown."""
    return source.backlog(span.lane, span.after, span.upto, most).changes


def since(source: Source, lane: Lane, moment: datetime) -> Cursor:
    """The cursor before the first change made at this moment or later. Raises ConfigInvalid if that may be gone already."""
    if source.row_lease and source.seek is None:
        raise ConfigInvalid(
            "a table with reader mark keeps nothing that was delivered",
            "reader mark sends whatever is in the table, and purges it: delete rows that are not to be sent",
        )
    if source.seek is None:
        raise ConfigInvalid(
            "the source keeps no delivered changes, so that no moment of it is a place to go on from", "name a position"
        )
    return source.seek.since(lane, moment)
