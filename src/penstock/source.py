"""What a source of changes must do. Implementations are in `sources/`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol, TypeGuard

import pyarrow as pa

from penstock.change import Change, Lane
from penstock.cursor import Cursor
from penstock.owner import Owner


@dataclass(frozen=True, slots=True)
class Window:
    """A piece of a lane as it is followed.

    `upto` is set when the window is whole: it ends on a commit, and nothing at or below it is still to come.
    `idle` says that nothing more is waiting behind it, so what came should be pushed on at once.
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
    """What lies between a cursor and the head."""

    head: int
    changes: int
    oldest_at: datetime | None


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


class Source(Protocol):
    """Frozen settings; every method opens what it needs, so that a source can be pickled to a worker.

    - Positions of one lane grow in commit order; a position names one change for as long as the source's incarnation lives.
    - `head` ends on a commit and never goes back. `read` gives the same changes for the same span every time.
    - The spans of a `split` are disjoint, in order, and cover the stretch.
    - `follow` gives every change after the cursor once, in order, and at least every 50 ms a window, empty or not.
    - Rows that are there already come in ranges, each a lane of its own; every row is in one range only, and the stream behind them
      leaves out what they have told: nothing is missing, nothing is told twice.
    - A source that no longer continues at a cursor (damaged, replaced, rewound) raises; it never skips.
    - `settle` is idempotent and the only call that deletes; it keeps everything that any registered pipeline still needs, unless
      the pipeline is gone and the source's own settings say that it is not waited for any longer. Then it finds no way on.
    - A registration belongs to the owner that registered it. `register` and `settle` of any other raise SourceOwned and change
      nothing, in the same transaction. One without an owner belongs to the next that comes, and so does one that was released.
    """

    @property
    def start(self) -> str:
        """Where a new pipeline begins: a word of the pipeline file."""

    @property
    def is_own(self) -> bool:
        """Whether it is an OwnSource; see the function of this name."""

    @property
    def gives_messages(self) -> bool:
        """Whether its changes carry messages (penstock.message), not rows."""

    def lanes(self) -> Sequence[Lane]:
        """The lanes of this source, each one Spark task."""

    def begin(self, lane: Lane, start: str) -> Cursor:
        """The cursor at `beginning`, `now`, `snapshot` or a position, for a pipeline without a watermark."""

    def head(self, lane: Lane) -> Cursor:
        """The cursor behind the last committed change."""

    def position(self, cursor: Cursor) -> int:
        """The position a cursor stands at. Raises CursorInvalid."""

    def incarnation(self, cursor: Cursor) -> str:
        """Which life of the source a cursor belongs to; positions of different lives are not comparable."""

    def behind(self, change: Change, since: Cursor) -> Cursor:
        """The cursor just behind this change, which was read from `since` on."""

    def ranges(self, cursor: Cursor) -> Mapping[Lane, Cursor]:
        """The ranges of rows that must be delivered before the stream can go on from this cursor; none for most."""

    def rows(self, cursor: Cursor, *, again: bool) -> Iterator[Window]:
        """The rows of a range, as `refresh`; only the last window is whole.

        Again: an earlier attempt may have delivered some, so what has gone meanwhile comes as `delete`.
        """

    def remaining(self, ranges: Sequence[Cursor]) -> Backlog:
        """How many rows these ranges still hold, as far as that is known without reading them; and when they were cut."""

    def joined(self, cursor: Cursor, ends: Sequence[Cursor]) -> Cursor:
        """The cursor from which the stream goes on, now that its ranges were delivered and ended with these."""

    def split(self, span: Span, parts: int) -> Sequence[Span]:
        """Cut a span into at most so many."""

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        """The changes of a span in order."""

    def follow(self, lane: Lane, after: Cursor) -> Iterator[Window]:
        """Changes from here on, for ever."""

    def backlog(self, lane: Lane, after: Cursor) -> Backlog:
        """How much waits behind this cursor."""

    def renew(self) -> None:
        """Begin a new life, once a person has decided where to go on in a source that was rewound."""

    def since(self, lane: Lane, moment: datetime) -> Cursor:
        """The cursor before the first change made at this moment or later. Raises ConfigInvalid if that may be gone already."""

    def register(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> None:
        """Note at once where a pipeline stands, also backwards: what lies behind it stays.

        Raises SourcePruned if that is gone, SourceOwned.
        """

    def registered(self, pipeline: str, lane: Lane) -> int | None:
        """The position the source has noted for this pipeline, None if it has never heard of it."""

    def readers(self) -> Sequence[Reader]:
        """Every pipeline that is registered."""

    def remarks(self) -> Sequence[str]:
        """What a person should know who looks at a pipeline: what hinders this source, if anything."""

    def settle(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> Settlement:
        """Note now and then that this pipeline lives and needs nothing below `upto` again, and forget a little.

        Raises SourceOwned.
        """

    def forget(self, pipeline: str, owner: Owner | None = None) -> bool:
        """Strike a pipeline off; False if it was not registered.

        With an owner, a registration of another one is handed over to it instead: it stays where it is.
        """


class Stamp(NamedTuple):
    """Who reads: the epoch of a term, and the attempt of a task under it."""

    epoch: int
    attempt: int


class Custody(Protocol):
    """What one attempt has marked as its own in a source, row by row; changes are named by their `new_row_id`.

    - No call touches a row that bears another mark: what a deposed holder does late has no effect on its successor.
    - `purge` and `reset` are durable when they return. A row that somebody has deleted counts as done.
    - Everything raises TermLost once a later attempt has marked one of these rows, and SourceUnavailable.
    """

    def cursor(self, since: Cursor) -> Cursor:
        """The same place as this attempt stands there: cursors behind what it has marked are made from it."""

    def purge(self, rows: Sequence[int]) -> None:
        """These are delivered: delete them."""

    def reset(self, rows: Sequence[int]) -> None:
        """Give these back: they are marked, and come, once more."""

    def confirm(self, rows: Sequence[int]) -> None:
        """See that these are still this attempt's own."""

    def close(self) -> None:
        """Disconnect."""


class Rowless:
    """What a source answers that has changes and nothing else: no rows that were there before them."""

    def ranges(self, cursor: Cursor) -> Mapping[Lane, Cursor]:
        """None."""
        return {}

    def rows(self, cursor: Cursor, *, again: bool) -> Iterator[Window]:
        """No rows."""
        return iter(())

    def remaining(self, ranges: Sequence[Cursor]) -> Backlog:
        """Nothing."""
        return Backlog(0, 0, None)

    def joined(self, cursor: Cursor, ends: Sequence[Cursor]) -> Cursor:
        """The same."""
        return cursor


class OwnSource(Source, Protocol):
    """A source that one pipeline has for itself. Whoever reads it marks what it gives as its own, so it must say who it is."""

    def goal(self, lane: Lane) -> Cursor:
        """Where a batch may end: whoever has read so far had come to the end of what was there when this was asked."""

    def follow_as(self, stamp: Stamp, lane: Lane, after: Cursor) -> Iterator[Window]:
        """Follow. What a predecessor has left comes first, at the same positions. Raises TermLost if there is a successor."""

    def read_as(self, stamp: Stamp, span: Span) -> Iterator[pa.RecordBatch]:
        """Read what is there, up to a goal or a little further; the same holds."""

    def taken(self, lane: Lane, after: Cursor) -> Iterator[pa.RecordBatch]:
        """Changes after a cursor that an attempt was given and has not delivered; reads only."""

    def custody(self, stamp: Stamp) -> Custody:
        """What whoever delivers for this attempt needs."""


def is_own(source: Source) -> TypeGuard[OwnSource]:
    """Whether one pipeline has this source for itself."""
    return source.is_own
