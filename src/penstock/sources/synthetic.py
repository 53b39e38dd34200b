"""Changes out of nothing at a steady rate: to warm an engine up, and to measure one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa

from penstock.change import CHANGES, NO_CHANGES, Change, Lane, Op
from penstock.cursor import Cursor
from penstock.errors import CursorInvalid
from penstock.owner import Owner
from penstock.settings import settings
from penstock.source import Backlog, Reader, Rowless, Settlement, Span, Window

LANE = Lane("synthetic")
PACE_SECONDS = 0.001
IDLE_SECONDS = 0.05
CHUNK = 5000


@settings
class SyntheticSource(Rowless):
    """Change n was made n/rate seconds after the origin; `total` ends them."""

    rate: float = 1000.0
    size: int = 300
    total: int = 1 << 62
    origin: float = 0.0
    start: str = "beginning"
    is_own, gives_messages = False, False

    def lanes(self) -> Sequence[Lane]:
        """One lane."""
        return [LANE]

    def begin(self, lane: Lane, start: str) -> Cursor:
        """The cursor before the first change, behind the newest, or at a position."""
        if start == "now":
            return self.head(lane)
        return _cursor(0 if start == "beginning" else int(start))

    def head(self, lane: Lane) -> Cursor:
        """The cursor behind the newest change."""
        return _cursor(self._made(time.time()))

    def position(self, cursor: Cursor) -> int:
        """The position a cursor stands at."""
        try:
            return int(json.loads(cursor)["position"])
        except (ValueError, KeyError, TypeError) as error:
            raise CursorInvalid(f"{cursor!r} is not a cursor of a synthetic source") from error

    def incarnation(self, cursor: Cursor) -> str:
        """There is only one life."""
        return "synthetic"

    def behind(self, change: Change, since: Cursor) -> Cursor:
        """The cursor just behind a change."""
        return _cursor(change.position)

    def split(self, span: Span, parts: int) -> Sequence[Span]:
        """Pieces of equal length."""
        after, upto = self.position(span.after), self.position(span.upto)
        edges = [after + (upto - after) * part // parts for part in range(parts + 1)]
        return [Span(span.lane, _cursor(a), _cursor(b)) for a, b in pairwise(edges) if a < b]

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        """The changes of a span."""
        after, upto = self.position(span.after), self.position(span.upto)
        for first in range(after + 1, upto + 1, CHUNK):
            yield self._batch(first, min(first + CHUNK - 1, upto))

    def follow(self, lane: Lane, after: Cursor) -> Iterator[Window]:
        """What is due, as it becomes due."""
        position, given_at = self.position(after), 0.0
        while True:
            made, now = self._made(time.time()), time.monotonic()
            if made > position:
                upto = min(made, position + CHUNK)
                yield Window(self._batch(position + 1, upto), _cursor(upto), upto == made)
                position, given_at = upto, now
            elif now - given_at > IDLE_SECONDS:
                yield Window(NO_CHANGES, _cursor(position), True)
                given_at = now
            time.sleep(PACE_SECONDS if made <= position else 0)

    def backlog(self, lane: Lane, after: Cursor) -> Backlog:
        """What is due behind a cursor."""
        position, head = self.position(after), self._made(time.time())
        oldest = datetime.fromtimestamp(self.origin + (position + 1) / self.rate, UTC) if head > position else None
        return Backlog(head, max(0, head - position), oldest)

    def renew(self) -> None:
        """It cannot be rewound."""

    def since(self, lane: Lane, moment: datetime) -> Cursor:
        """The cursor before the first change of this moment or later."""
        return _cursor(max(0, self._made(moment.timestamp()) - 1))

    def register(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> None:
        """It remembers nobody."""

    def registered(self, pipeline: str, lane: Lane) -> int | None:
        """It knows nobody."""
        return None

    def readers(self) -> Sequence[Reader]:
        """Nobody."""
        return ()

    def remarks(self) -> Sequence[str]:
        """Nothing hinders it."""
        return ()

    def settle(self, pipeline: str, lane: Lane, upto: Cursor, owner: Owner | None = None) -> Settlement:
        """There is nothing to forget."""
        return Settlement()

    def forget(self, pipeline: str, owner: Owner | None = None) -> bool:
        """It knew nobody."""
        return False

    def _made(self, now: float) -> int:
        return min(self.total, max(0, int((now - self.origin) * self.rate)))

    def _batch(self, first: int, last: int) -> pa.RecordBatch:
        positions = range(first, last + 1)
        rows = last - first + 1
        made = [int((self.origin + position / self.rate) * 1e6) for position in positions]
        text = '{"id":%d,"total":%d.5,"text":"' + "x" * max(0, self.size - 40) + '"}'
        return pa.RecordBatch.from_arrays(
            [
                pa.array(positions, pa.int64()),
                pa.array([Op.INSERT.value] * rows),
                pa.array(["synthetic"] * rows),
                pa.array([f'{{"id":{position % 1000}}}' for position in positions]),
                pa.nulls(rows, pa.string()),
                pa.array([text % (position % 1000, position % 200) for position in positions]),
                pa.array(made, CHANGES.field("at").type),
                pa.nulls(rows, pa.int64()),
                pa.array(positions, pa.int64()),
                pa.nulls(rows, pa.string()),
                pa.nulls(rows, pa.int64()),
                pa.nulls(rows, pa.int64()),
            ],
            schema=CHANGES,
        )


def _cursor(position: int) -> Cursor:
    return Cursor(json.dumps({"position": position}))
