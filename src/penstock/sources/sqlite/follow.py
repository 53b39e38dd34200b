"""Following the log: windows that end on commits, immediately after a commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager

from penstock.change import NO_CHANGES
from penstock.following import Steps
from penstock.source import Window
from penstock.sources.sqlite.database import Identity, identity, is_replaced
from penstock.sources.sqlite.decoder import LogChunk
from penstock.sources.sqlite.log import Log
from penstock.sources.sqlite.point import Point
from penstock.sources.sqlite.wake import Wake, waking

GATHER = 0.002  # seconds between windows, under load


def follow(path: str, reading: Callable[[], AbstractContextManager[Log]], place: Point) -> Steps:
    """Windows for ever; a file that was replaced is opened again and must continue at the same place."""
    with waking(path) as wake:
        until = yield None
        while True:
            opened_as = identity(path)
            with reading() as log:
                place, until = yield from _until_replaced(path, opened_as, log, place, wake, until=until)


def _until_replaced(
    path: str, opened_as: Identity | None, log: Log, place: Point, wake: Wake, *, until: float
) -> Generator[Window | None, float, tuple[Point, float]]:
    patience, seen, known = GATHER, -1, place
    while not is_replaced(opened_as, now := identity(path)):
        opened_as, version = now, log.version()
        if version != seen:  # there was a commit since the last query
            chunk, seen = log.chunk(place), version
            if chunk.changes.num_rows or chunk.end.position < chunk.head:
                given, patience, seen = time.monotonic(), GATHER, -1
                place, until = yield from _windows(log, chunk)
                known = place
                time.sleep(max(0.0, min(given + GATHER, until) - time.monotonic()))
                continue
            place = chunk.end
        if time.monotonic() >= until:
            until = yield Window(NO_CHANGES, place.to_cursor(), idle=True) if place != known else None
            known = place
        has_stirred = wake.wait(min(patience, until - time.monotonic()))
        # the file is written shortly before the commit is visible: a change may be visible only to a later query
        patience = GATHER if has_stirred else min(8 * patience, wake.longest)
    return place, until


def _windows(log: Log, chunk: LogChunk) -> Generator[Window, float, tuple[Point, float]]:
    """The changes up to the head of the first chunk, where the window is whole."""
    head = chunk.head
    while chunk.end.position < head:
        yield Window(chunk.changes, None, idle=chunk.is_cut)
        chunk = log.chunk(chunk.end, head)
    until = yield Window(chunk.changes, chunk.end.to_cursor(), idle=chunk.head == head)
    return chunk.end, until
