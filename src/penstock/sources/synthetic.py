"""Generated changes at a steady rate, to warm up an engine or to measure it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pyarrow as pa

from penstock.change import CHANGES, Change, Lane, Op
from penstock.cursor import Cursor
from penstock.errors import CursorInvalid
from penstock.following import Polled, Steps
from penstock.settings import settings
from penstock.source import Backlog, Following, Span, Stamp, Window, at_most
from penstock.sources.one_lane import OneLane, batch_of, cuts, pieces

LANE = Lane("synthetic")
PACE_SECONDS = 0.001
CHUNK = 5000


@settings
class SyntheticSource(OneLane):
    """Change n is made n/rate seconds after the origin; there are at most `total`."""

    rate: float = 1000.0
    size: int = 300
    total: int = 1 << 62
    origin: float = 0.0
    lane = LANE

    def begin(self, lane: Lane, start: str) -> Cursor:
        """The cursor before the first change, after the newest, or at a position."""
        if start == "now":
            return self.head(lane)
        return _cursor(0 if start == "beginning" else int(start))

    def head(self, lane: Lane) -> Cursor:
        """The cursor after the newest change."""
        return _cursor(self._made(time.time()))

    def position(self, cursor: Cursor) -> int:
        """The position of a cursor."""
        try:
            return int(json.loads(cursor)["position"])
        except (ValueError, KeyError, TypeError) as error:
            raise CursorInvalid(f"{cursor!r} is not a cursor of a synthetic source") from error

    def incarnation(self, cursor: Cursor) -> str:
        """Always the same one."""
        return "synthetic"

    def cursor_after(self, change: Change, since: Cursor) -> Cursor:
        """The cursor immediately after a change."""
        return _cursor(change.position)

    def split(self, span: Span, parts: int) -> Sequence[Span]:
        """Spans of equal length."""
        after, upto = self.position(span.after), self.position(span.upto)
        return pieces(span, map(_cursor, cuts(after, upto, parts))) if after < upto else []

    def read(self, span: Span, reader: Stamp) -> Iterator[pa.RecordBatch]:
        """The changes of a span."""
        after, upto = self.position(span.after), self.position(span.upto)
        for first in range(after + 1, upto + 1, CHUNK):
            yield self._batch(first, min(first + CHUNK - 1, upto))

    def open(self, lane: Lane, after: Cursor, reader: Stamp) -> Following:
        """Changes as they become due."""
        return Polled(self._follow(self.position(after)))

    def _follow(self, position: int) -> Steps:
        until = yield None
        while True:
            while (made := self._made(time.time())) <= position:
                if (now := time.monotonic()) >= until:
                    until = yield None
                time.sleep(max(0.0, min(PACE_SECONDS, until - now)))
            upto = min(made, position + CHUNK)
            until = yield Window(self._batch(position + 1, upto), _cursor(upto), upto == made)
            position = upto

    def backlog(self, lane: Lane, after: Cursor, upto: Cursor | None = None, most: int | None = None) -> Backlog:
        """The changes that are due after a cursor."""
        position, head = self.position(after), self.position(upto or self.head(lane))
        oldest = datetime.fromtimestamp(self.origin + (position + 1) / self.rate, UTC) if head > position else None
        return Backlog(head, at_most(max(0, head - position), most), oldest)

    def _made(self, now: float) -> int:
        return min(self.total, max(0, int((now - self.origin) * self.rate)))

    def _batch(self, first: int, last: int) -> pa.RecordBatch:
        positions = range(first, last + 1)
        text = '{"id":%d,"total":%d.5,"text":"' + "x" * max(0, self.size - 40) + '"}'
        columns = {
            "position": positions,
            "op": [Op.INSERT.value] * len(positions),
            "table": ["synthetic"] * len(positions),
            "key": [f'{{"id":{position % 1000}}}' for position in positions],
            "after": [text % (position % 1000, position % 200) for position in positions],
            "at": [int((self.origin + position / self.rate) * 1e6) for position in positions],
        }
        return batch_of(CHANGES, columns, len(positions))


def _cursor(position: int) -> Cursor:
    return Cursor(json.dumps({"position": position}))
