"""Following the log: windows that end on commits, at once when something was committed, and a sign of life when not."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator

from penstock.change import NO_CHANGES
from penstock.source import Window
from penstock.sources.sqlite.database import Identity, identity, is_replaced
from penstock.sources.sqlite.glass import Stretch
from penstock.sources.sqlite.image import EVERYTHING, Choice
from penstock.sources.sqlite.log import Log, reading
from penstock.sources.sqlite.place import Place
from penstock.sources.sqlite.wake import Wake, waking

BEAT = 0.04  # seconds between windows when nothing happens
GATHER = 0.002  # seconds between windows when much happens


def follow(
    path: str, is_meant: Callable[[str], bool], place: Place, choice: Choice = EVERYTHING, *, heals: bool = False
) -> Iterator[Window]:
    """Windows for ever; a file that was replaced is opened anew and must go on at the same place."""
    with waking(path) as wake:
        while True:
            opened_as = identity(path)
            with reading(path, is_meant, choice, heals=heals) as log:
                place = yield from _until_replaced(path, opened_as, log, place, wake)


def _until_replaced(path: str, opened_as: Identity | None, log: Log, place: Place, wake: Wake) -> Generator[Window, None, Place]:
    given, patience, seen, cursor = -math.inf, GATHER, -1, place.to_cursor()
    while not is_replaced(opened_as, now := identity(path)):
        opened_as, version = now, log.version()
        if version != seen:  # somebody has committed something since the last look
            stretch, seen = log.stretch(place), version
            if stretch.changes.num_rows or stretch.end.position < stretch.head:
                given, patience, seen = time.monotonic(), GATHER, -1
                place = yield from _windows(log, stretch)
                time.sleep(max(0.0, given + GATHER - time.monotonic()))
                continue
            place, cursor = stretch.end, stretch.end.to_cursor()
        if time.monotonic() - given >= BEAT:
            given = time.monotonic()
            yield Window(NO_CHANGES, cursor, idle=True)
        has_stirred = wake.wait(min(patience, given + BEAT - time.monotonic()))
        # the file is written a moment before the commit can be seen, so what stirred may show only at one of the next looks
        patience = GATHER if has_stirred else min(8 * patience, wake.longest)
    return place


def _windows(log: Log, stretch: Stretch) -> Generator[Window, None, Place]:
    """All up to the head that was seen first: only there a window is whole."""
    head = stretch.head
    while stretch.end.position < head:
        yield Window(stretch.changes, None, idle=stretch.is_cut)
        stretch = log.stretch(stretch.end, head)
    yield Window(stretch.changes, stretch.end.to_cursor(), idle=stretch.head == head)
    return stretch.end
