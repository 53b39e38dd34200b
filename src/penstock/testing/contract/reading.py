"""How the suites read a source."""

from __future__ import annotations

import time
from contextlib import closing

from penstock.change import Change, Lane, from_batch
from penstock.cursor import Cursor
from penstock.following import follow
from penstock.source import ANONYMOUS, Following, Source, Span, Stamp

DAY = 86_400.0


def beginning(source: Source) -> Cursor:
    """The beginning of the first lane."""
    return source.begin(source.lanes()[0], "beginning")


def whole(source: Source, after: Cursor | None = None) -> Span:
    """The first lane up to its head, from a cursor or from its beginning."""
    lane = source.lanes()[0]
    return Span(lane, beginning(source) if after is None else after, source.head(lane))


def read(source: Source, *spans: Span, reader: Stamp = ANONYMOUS) -> list[Change]:
    """The changes of these spans."""
    return [change for span in spans for batch in source.read(span, reader) for change in from_batch(batch)]


def followed(source: Source, after: Cursor, changes: int, patience: float) -> list[Change]:
    """The changes of the first lane after a cursor, until whole windows had at least so many."""
    found: list[Change] = []
    end = time.monotonic() + patience
    with closing(follow(source, source.lanes()[0], after, ANONYMOUS)) as windows:  # type: ignore[type-var]
        for window in windows:
            found += from_batch(window.changes)
            if window.upto and len(found) >= changes:
                return found
            assert time.monotonic() < end, f"following gave {len(found)} of {changes} changes within {patience} s"
    raise AssertionError("following ended")


def polled(following: Following, wait: float) -> list[Change]:
    """The changes of one poll."""
    window = following.poll(wait)
    return [*from_batch(window.changes)] if window else []


def polled_at(source: Source, lane: Lane, after: Cursor, wait: float) -> list[Change]:
    """The changes of the first poll after a cursor."""
    with closing(source.open(lane, after, ANONYMOUS)) as following:
        return polled(following, wait)
