"""Following a lane: the one loop that polls a source, and its heartbeat."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import closing

from penstock.change import NO_CHANGES, Lane
from penstock.cursor import Cursor
from penstock.errors import SourceUnavailable
from penstock.source import Following, Source, Stamp, Window

BEAT = 0.03
"""Seconds without changes after which an empty window is given: with the time that a look takes, at least one every 50 ms."""

Steps = Generator[Window | None, float, None]
"""A following as a generator: it is sent the moment at which the next window, or None, must be yielded; the first is None."""


def follow(source: Source, lane: Lane, after: Cursor, reader: Stamp) -> Iterator[Window]:
    """Every change after a cursor once, in order, for ever; at least every 50 ms a window, empty or not."""
    with closing(source.open(lane, after, reader)) as following:
        yield from beating(following, after)


def beating(following: Following, after: Cursor | None) -> Iterator[Window]:
    """The windows of a following, and empty ones where no changes come: without a cursor as long as a window is not whole."""
    while True:
        window = following.poll(BEAT) or Window(NO_CHANGES, after, idle=True)
        after = window.upto
        yield window


class Polled:
    """Implements Following by a generator, which has opened what it needs when it yields its first None."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        next(steps)

    def poll(self, wait: float) -> Window | None:
        """The next step. Raises SourceUnavailable if an earlier one has failed."""
        try:
            return self._steps.send(time.monotonic() + wait)
        except StopIteration:
            raise SourceUnavailable("the following has failed, or was closed", "open another one") from None

    def close(self) -> None:
        """End the generator."""
        self._steps.close()
