"""A synthetic source with several lanes, which appear and end: each is a file in a folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from penstock.change import Change, Lane
from penstock.cursor import Cursor
from penstock.errors import ConfigInvalid, CursorInvalid
from penstock.following import Polled, Steps
from penstock.settings import settings
from penstock.source import Backlog, Following, Source, Span, Stamp, Window, at_most
from penstock.sources.synthetic import SyntheticSource


class Extent(NamedTuple):
    """The positions of a lane: after the first up to the last; whether there will be more."""

    first: int
    last: int
    has_ended: bool


@settings
class LanesSource(Source):
    """The changes of a lane have the positions that its file names, without gaps."""

    folder: str
    start: str = "beginning"

    def write(self, lane: str, first: int, last: int, *, has_ended: bool = False) -> None:
        """Let a lane have these changes."""
        draft = Path(self.folder, f"{lane}.draft")
        draft.write_text(json.dumps([first, last, has_ended]))
        os.replace(draft, Path(self.folder, f"{lane}.lane"))

    def extent(self, lane: Lane) -> Extent:
        return Extent(*json.loads(Path(self.folder, f"{lane}.lane").read_text()))

    def lanes(self) -> Sequence[Lane]:
        return [Lane(path.stem) for path in sorted(Path(self.folder).glob("*.lane"))]

    def end(self, lane: Lane) -> Cursor | None:
        extent = self.extent(lane)
        return _cursor(lane, extent.last) if extent.has_ended else None

    def begin(self, lane: Lane, start: str) -> Cursor:
        extent = self.extent(lane)
        if start not in ("beginning", "now") and not start.isdecimal():
            raise ConfigInvalid(f"{start!r} is no place to start at", "choose beginning, now or a position")
        return _cursor(lane, {"beginning": extent.first, "now": extent.last}.get(start) or int(start if start.isdecimal() else 0))

    def head(self, lane: Lane) -> Cursor:
        return self.begin(lane, "now")

    def position(self, cursor: Cursor) -> int:
        try:
            _, position = json.loads(cursor)
            return int(position)
        except (ValueError, TypeError) as error:
            raise CursorInvalid(f"{cursor!r} is not a cursor of many lanes") from error

    def incarnation(self, cursor: Cursor) -> str:
        return "lanes"

    def cursor_after(self, change: Change, since: Cursor) -> Cursor:
        return _cursor(json.loads(since)[0], change.position)

    def split(self, span: Span, parts: int) -> Sequence[Span]:
        after, upto = self.position(span.after), self.position(span.upto)
        edges = [_cursor(span.lane, after + (upto - after) * part // parts) for part in range(parts + 1)]
        return [Span(span.lane, a, b) for a, b in pairwise(edges) if a != b]

    def read(self, span: Span, reader: Stamp) -> Iterator[pa.RecordBatch]:
        after, upto = self.position(span.after), self.position(span.upto)
        if upto > after:
            yield _batch(after + 1, upto)

    def open(self, lane: Lane, after: Cursor, reader: Stamp) -> Following:
        return Polled(self._follow(lane, self.position(after)))

    def _follow(self, lane: Lane, position: int) -> Steps:
        until = yield None
        while True:
            while (head := self.extent(lane).last) <= position:
                if (now := time.monotonic()) >= until:
                    until = yield None
                time.sleep(max(0.0, min(0.001, until - now)))
            until = yield Window(_batch(position + 1, head), _cursor(lane, head), True)
            position = head

    def backlog(self, lane: Lane, after: Cursor, upto: Cursor | None = None, most: int | None = None) -> Backlog:
        head = self.position(upto or self.head(lane))
        waiting = at_most(head - self.position(after), most)
        return Backlog(head, waiting, datetime.now(UTC) if waiting else None)


def _cursor(lane: str, position: int) -> Cursor:
    return Cursor(json.dumps([lane, position]))


def _batch(first: int, last: int) -> pa.RecordBatch:
    return SyntheticSource()._batch(first, last)
