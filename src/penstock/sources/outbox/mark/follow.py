"""Following marked rows: first the rows that a predecessor left, then all others, which are marked and returned at once."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from datetime import timedelta

import pyarrow as pa

from penstock.change import last_position
from penstock.cursor import Cursor
from penstock.errors import TermLost
from penstock.following import Steps
from penstock.source import Stamp, Window
from penstock.sources.outbox.follow import GATHER, rest
from penstock.sources.outbox.mark.point import of_cursor, to_cursor
from penstock.sources.outbox.mark.stamp import POSITIONS, astray, before, later, mark, of, renumbered
from penstock.sources.outbox.mark.table import Opened, Table, is_page, to_changes

PAGE = 10_000  # rows that are read, or purged, at a time
SHORT = 0.001  # seconds that a query may take
REST = 9  # pause for each second beyond that: a query passes over every row that is under way, since there is no index of marks
LOOK = 1.0  # seconds between checks for a successor, while the table is short


def follow(opened: Opened, stamp: Stamp, after: Cursor, records: int, backoff: timedelta) -> Steps:
    """Windows for ever; a query marks at most `records` rows, and `backoff` limits the wait after queries without rows."""
    with opened(anew=True) as table:
        take_over(table, stamp, after)
        cursor, patience, looked = after, GATHER, time.monotonic()
        until = yield None
        for batch in left(table, stamp, after):
            cursor = to_cursor(last_position(batch), stamp)
            until = yield Window(batch, cursor, idle=False)
        while True:
            began = time.monotonic()
            rows = table.mark(stamp, of_cursor(cursor)[0], records)
            now, is_full = time.monotonic(), is_page(rows, records)
            if rows:
                cursor, patience = to_cursor(rows[-1].position, stamp), GATHER
                until = yield Window(to_changes(rows), cursor, idle=not is_full)
            if not is_full:
                if now - looked >= LOOK:
                    see_no_successor(table, stamp)
                    looked = now
                due = rest(began, time.monotonic()) if rows else patience
                until = yield from _rest(max(due, REST * (now - began - SHORT)), until)
                patience = GATHER if rows else min(2 * patience, max(GATHER, backoff.total_seconds()))


def _rest(seconds: float, until: float) -> Generator[None, float, float]:
    """Wait, during several polls if one is shorter; return the moment at which the last poll must end."""
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        if now >= until:
            until = yield None
        time.sleep(max(0.0, min(end, until) - time.monotonic()))
    return until


def take_over(table: Table, stamp: Stamp, after: Cursor) -> None:
    """Make all rows with earlier marks rows of this attempt: later statements of their former holders have no effect.

    Rows delivered up to the cursor are deleted, and rows after it keep their order. Two kinds lose their marks: rows that a leader
    marked after it was deposed, and rows that would come before a lower id of their key that was given back.
    """
    see_no_successor(table, stamp)
    position, since = of_cursor(after)
    if since != stamp:
        while table.purge_span(of(since, position), PAGE):
            continue
    kept, stale = renumbered(table.marked(before(stamp)), position)
    if stale:
        table.reset([row for row, _ in stale], before(stamp))
    table.remark([(row, marked, mark(stamp, at)) for row, marked, at in kept])
    if kept and (early := astray(table.upto(of(stamp)), of(stamp))):  # only now can no other attempt change them
        table.reset(early, of(stamp))


def see_no_successor(table: Table, stamp: Stamp) -> None:
    """Raise TermLost if rows are marked under a later term, by a successor or by a second pipeline."""
    if newer := table.marked(later(stamp)):
        said = f"{len(newer)} rows of the outbox were marked under a later term, or attempt, than {stamp.epoch}.{stamp.attempt}"
        raise TermLost(said, "if this repeats, stop the other pipeline that reads this table")


def left(table: Table, stamp: Stamp, after: Cursor, upto: int = POSITIONS - 1) -> Iterator[pa.RecordBatch]:
    """The rows that this attempt has marked after a cursor, up to a position."""
    position = of_cursor(after)[0]
    while rows := table.read(of(stamp, upto, position), PAGE):
        position = rows[-1].position
        yield to_changes(rows)
