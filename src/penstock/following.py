"""Following a lane: the loop that polls a source, and its heartbeat."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import closing

from penstock.change import NO_CHANGES, Lane
from penstock.cursor import Cursor
from penstock.errors import SourceUnavailable
from penstock.source import Following, Source, Stamp, Window

BEAT = 0.03
"""Seconds without changes before an empty window: with the time of a poll, at least one every 50 ms."""

Steps = Generator[Window | None, float, None]
"""A following as a generator, which receives the time by which it must yield the next window or None; the first is None."""


def follow(source: Source, lane: Lane, after: Cursor, reader: Stamp) -> Iterator[Window]:
    """Every change after a cursor once, in order, without end; a window, empty or not, at least every 50 ms."""
    with closing(source.open(lane, after, reader)) as following:
        yield from beating(following, after)


def beating(following: Following, after: Cursor | None) -> Iterator[Window]:
    """The windows of a following, and empty ones in between: without a cursor while a window is not whole."""
    while True:
        window = following.poll(BEAT) or Window(NO_CHANGES, after, idle=True)
        after = window.upto
        yield window


class Polled:
    """Implements Following by a generator, which opens its resources before it yields its first None."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        next(steps)

    def poll(self, wait: float) -> Window | None:
        """The next step. Raises SourceUnavailable after a step that failed."""
        try:
            return self._steps.send(time.monotonic() + wait)
        except StopIteration:
            raise SourceUnavailable("the following failed or was closed", "open another one") from None

    def close(self) -> None:
        """End the generator."""
        self._steps.close()
