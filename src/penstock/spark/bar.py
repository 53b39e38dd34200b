"""A bar before a change that an expression raises on: what came before is delivered, then the pipeline halts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from penstock.change import Change, Lane, from_batch
from penstock.cursor import Cursor
from penstock.errors import TransformInvalid
from penstock.source import OwnSource, Source, Span, Stamp, Window


def bar(source: Source, culprit: Change, error: TransformInvalid) -> Source:
    """The source with a bar before this change; an OwnSource stays one."""
    kind = OwnBarred if isinstance(source, OwnSource) else Barred
    return cast(Source, kind(source, culprit, error))


@dataclass(frozen=True)
class Barred:
    """A source that gives everything before a change and raises there."""

    source: Any
    culprit: Change
    error: TransformInvalid

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for before a pickled one has a source
            raise AttributeError(name)
        return getattr(self.source, name)

    def follow(self, lane: Lane, after: Cursor) -> Iterator[Window]:
        """Changes up to the one that bars the way."""
        return self._cut(self.source.follow(lane, after))

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        """The changes of a span, up to the one that bars the way."""
        return self._cut_batches(self.source.read(span))

    def rows(self, cursor: Cursor, *, again: bool) -> Iterator[Window]:
        """Rows of a range, up to the one that bars the way."""
        return self._cut(self.source.rows(cursor, again=again))

    def _cut_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        windows = (Window(changes, None, idle=False) for changes in batches)
        return (window.changes for window in self._cut(windows))

    def _cut(self, windows: Iterator[Window]) -> Iterator[Window]:
        for window in windows:
            found = [is_same(self.culprit, change) for change in from_batch(window.changes)]
            if True in found:
                yield Window(window.changes.slice(0, found.index(True)), None, idle=False)
                raise self.error
            yield window


class OwnBarred(Barred):
    """The same of a source that one pipeline has for itself."""

    def follow_as(self, stamp: Stamp, lane: Lane, after: Cursor) -> Iterator[Window]:
        """Changes up to the one that bars the way."""
        return self._cut(self.source.follow_as(stamp, lane, after))

    def read_as(self, stamp: Stamp, span: Span) -> Iterator[pa.RecordBatch]:
        """What is there, up to the one that bars the way."""
        return self._cut_batches(self.source.read_as(stamp, span))


def _forwarded(name: str) -> property:
    return property(lambda barred: getattr(barred.source, name))


# from Python 3.12 on isinstance looks for the members of a protocol without __getattr__
for _name in {*vars(Source), *vars(OwnSource)} - {*dir(OwnBarred)}:
    if not _name.startswith("_"):
        setattr(OwnBarred, _name, _forwarded(_name))


def is_same(culprit: Change, change: Change) -> bool:
    """Whether this is the culprit met again; a row of a range is read anew each time, so it is known by its key alone."""
    if culprit.ordinal is None:
        return change.place == culprit.place
    return change.ordinal is not None and (change.table, change.key) == (culprit.table, culprit.key)
