"""The changes of a source as rows of a user's query, whose checkpoint holds the progress: a cursor for each lane."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.change import Lane
from penstock.cursor import Cursor
from penstock.errors import SourcePruned, SourceUnavailable
from penstock.progress.batch_target import Target, covers, heads, prove
from penstock.source import Source, Span, count
from penstock.spark.request import Request

if TYPE_CHECKING:
    import pyarrow as pa

BEAT_SECONDS = 60.0
"""Interval at which an idle named reader is recorded, so that it does not count as gone."""
_CUTS = 4

At = str | list[str]
"""The cursor of a stream on a lane; in a list, if the lane has ended there."""
Offset = dict[str, At]
"""The progress of a stream on each lane, in the checkpoint of Spark."""


class ChangeBatch(DataSourceReader):
    """`spark.read`: the changes of spans that are read in parallel."""

    def __init__(self, request: Request) -> None:
        self.request = request

    def partitions(self) -> list[InputPartition]:
        """The spans."""
        return [InputPartition(span) for span in self.request.spans()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of a span; without spans Spark calls this with another partition, which is empty."""
        return iter(()) if partition.value is None else self.request.batches(partition.value)


class ChangeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream`: the changes between two cursors never change, so that a repeated batch is the same."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._target: Target | None = None
        self._committed: Offset = {}
        self._noted_at = time.monotonic()

    @property
    def source(self) -> Source:
        """The source of the changes."""
        return self.request.source

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of changes in one batch, if the options set one."""
        return ReadAllAvailable() if self.request.most is None else ReadMaxRows(self.request.most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Set the target of this run."""
        self._target = heads(self.source)

    def initialOffset(self) -> Offset:
        """The start of a query without a checkpoint."""
        return self._begun({lane: self.request.begin(lane, self.source.start) for lane in self.source.lanes()})

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next batch; its beginning if there are no changes.

        A new lane gets its beginning, which is in the checkpoint before the lane is read, so that a repeated batch is the same.
        """
        try:
            self._beat()
            lanes = list(self.source.lanes() if self._target is None else self._target)
            known = {lane: self._end(Lane(lane), at, limit) for lane, at in start.items() if not _is_over(Lane(lane), at, lanes)}
            return known | self._begun({lane: self.source.begin(lane, "beginning") for lane in lanes if lane not in start})
        except SourceUnavailable:
            if self._target is not None:
                raise  # an unchanged offset would end the query
            return start

    def reportLatestOffset(self) -> dict[str, str]:
        """The heads of the source, for the progress that Spark reports."""
        return {str(lane): str(cursor) for lane, cursor in heads(self.source).items()}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The spans of a batch, read in parallel: rows have positions, and no order in Spark."""
        spans = [Span(Lane(lane), self._after(Lane(lane), start), cursor_of(at)) for lane, at in end.items()]
        return [InputPartition(piece) for span in spans if span.after != span.upto for piece in self.request.pieces(span)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of a span."""
        return self.request.batches(partition.value)

    def commit(self, end: Offset) -> None:
        """Settle an offset: Spark does not read before it again."""
        self._committed = end
        self._note()

    def _after(self, lane: Lane, start: Offset) -> Cursor:
        return cursor_of(start[lane]) if lane in start else self.source.begin(lane, "beginning")

    def _begun(self, lanes: Mapping[Lane, Cursor]) -> Offset:
        """The offset of new lanes; registers a named reader, so that its changes are kept."""
        if self.request.reader and self.source.retention:
            for lane, cursor in lanes.items():
                self.source.retention.register(self.request.reader, lane, cursor)
        return {str(lane): str(cursor) for lane, cursor in lanes.items()}

    def _end(self, lane: Lane, at: At, limit: ReadLimit) -> At:
        if isinstance(at, list):
            return at
        upto, end = self._upto(lane, Cursor(at), limit), self.source.end(lane)
        return [upto] if end is not None and covers(self.source, upto, end) else upto

    def _upto(self, lane: Lane, at: Cursor, limit: ReadLimit) -> Cursor:
        prove(self.source, lane, at)
        head = self.source.head(lane) if self._target is None else self._target[lane]
        if covers(self.source, at, head):
            return at
        return cut(self.source, Span(lane, at, head), limit.max_rows) if isinstance(limit, ReadMaxRows) else head

    def _beat(self) -> None:
        if time.monotonic() - self._noted_at >= BEAT_SECONDS:
            self._note()

    def _note(self) -> None:
        self._noted_at = time.monotonic()
        if self.request.reader and self.source.retention:
            for lane, at in self._committed.items():
                with suppress(SourceUnavailable):  # a read-only source cannot settle, and is read nevertheless
                    self.source.retention.settle(self.request.reader, Lane(lane), cursor_of(at))


def cursor_of(at: At) -> Cursor:
    """The cursor of a lane in an offset."""
    return Cursor(at[0] if isinstance(at, list) else at)


def _is_over(lane: Lane, at: At, lanes: Collection[Lane]) -> bool:
    """Whether a lane that the source no longer lists was read to its end. Raises SourcePruned if it was not."""
    if lane not in lanes and not isinstance(at, list):
        raise SourcePruned(
            f"lane {lane} is no longer in the source, and this stream has not read it to its end",
            "set the option reader, which keeps a lane until it is read; start again with another checkpoint",
        )
    return lane not in lanes


def cut(source: Source, span: Span, most: int) -> Cursor:
    """The end of a part of a span with at most `most` changes, found in few steps; the end of the span if it cannot be cut."""
    while (changes := count(source, span, _CUTS * most) or 0) > most:
        first = source.split(span, -(-changes // most))[0]
        if first == span:
            break
        span = first
    return span.upto
