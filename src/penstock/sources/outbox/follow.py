"""Following an outbox: committed messages are recorded as a window and returned at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator

import pyarrow as pa

from penstock.cursor import Cursor
from penstock.following import Steps
from penstock.source import Window
from penstock.sources.outbox.database import Connection
from penstock.sources.outbox.log import Log, last_of, place_after, reading
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.point import Point
from penstock.sources.outbox.window import RecordedWindow

GATHER = 0.003  # seconds from one query to the next, under load
LEAST = 0.0003  # seconds of pause, however long a query and its delivery have taken
CHECK = 0.5  # seconds between checks of incarnation and sequence, under load
LONGEST = 0.025  # seconds between queries, when idle


def follow(dsn: str, names: Names, place: Point, notify: bool) -> Steps:
    """Windows for ever."""
    with reading(dsn, names, anew=True) as log:
        log.confirm(place)
        if notify:
            channel = names.channel.replace('"', '""')
            log.connection.execute(f'listen "{channel}"'.encode())
        number, life, position = _number_before(log, place), place.incarnation, place.position
        checked, patience = time.monotonic(), GATHER
        until = yield None
        while True:
            looked = time.monotonic()
            windows = log.windows.advance(life, number)
            for window, rows in windows:
                pages = log.read(window, position, rows)
                for whole in _given(pages, window, position, life, is_last=window is windows[-1][0]):
                    until = yield whole
                number, position = window.number, window.end
            now = time.monotonic()
            if now >= until or now - checked >= CHECK:
                log.lives(life)
                checked = now
            if now >= until:
                until = yield None
            now = time.monotonic()
            due = rest(looked, now) if windows else patience
            _wait(log.connection, min(due, max(0.0, until - now)), notify, gathers=bool(windows))
            patience = GATHER if windows else min(2 * patience, LONGEST)


def _number_before(log: Log, place: Point) -> int:
    """The number of the last window that ends at or before this place."""
    window = log.windows.at(place.position)
    return window.number if window.end <= place.position else window.number - 1


def _given(pages: Iterable[pa.RecordBatch], window: RecordedWindow, position: int, life: str, *, is_last: bool) -> Iterator[Window]:
    """A window in pieces; only the last one is whole."""
    for batch in pages:
        position += batch.num_rows
        is_whole = position == window.end
        upto: Cursor | None = place_after(last_of(batch), life).to_cursor() if is_whole else None
        yield Window(batch, upto, idle=is_whole and is_last)


def rest(looked: float, now: float) -> float:
    """Seconds to wait after a query that found messages."""
    return max(LEAST, looked + GATHER - now)


def _wait(connection: Connection, seconds: float, notify: bool, *, gathers: bool) -> None:
    """Wait, under `notify` until a writer commits; while messages gather, a notification does not end the wait."""
    if gathers or not notify:
        time.sleep(seconds)
        seconds = 0.0
    if notify:
        deque(connection.notifies(timeout=seconds, stop_after=1), maxlen=0)  # drops earlier ones too
