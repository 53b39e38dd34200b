"""The read half of a task: follows a lane, or reads it up to a target, and gives its changes to Spark, with marks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from penstock.change import NO_CHANGES, Lane, last_of, last_position
from penstock.cursor import Cursor, Watermark
from penstock.errors import Directive, PenstockError, SourcePruned, StateLost
from penstock.failpoint import reach
from penstock.following import follow
from penstock.poison.policy import then_of
from penstock.progress.backfill import Backfill
from penstock.source import Span, Stamp, Window
from penstock.spark.bundles import encoding_of
from penstock.spark.outsize import Outsize, cut, refused
from penstock.spark.rows import FLUSH_BYTES, ROOMY_BYTES, Mark
from penstock.spark.task_spec import TaskSpec

PACE_SECONDS = 0.05
SILENCE_SECONDS = 0.4


def read(spec: TaskSpec, lane: Lane) -> Iterator[pa.RecordBatch]:
    """The rows of an epoch, or of a batch."""
    task = TaskContext.get().taskAttemptId()
    with spec.reporting(task):
        yield from _read(spec, lane, task)


def _read(spec: TaskSpec, lane: Lane, task: int) -> Iterator[pa.RecordBatch]:
    """The rows after the watermark, until the epoch ends, the target is reached, the writer fails, or a stop is requested."""
    if not spec.await_term():
        # the writer fails on a stream without a batch
        yield encoding_of(spec.pipeline.transform.has_sql).pack(NO_CHANGES, None, 0)
        return
    while True:
        reading = Reading(spec, lane, task)
        yield from reading.rows_of(Window(NO_CHANGES, reading.mark.cursor, idle=spec.target is None))
        try:
            yield from reading.rows()
        except PenstockError as error:
            if isinstance(error, SourcePruned) and reading.is_overtaken():
                continue
            if error.directive is Directive.HALT:  # an operator may skip its cause, but not the changes before
                yield from reading.until_delivered()
            raise
        return


class Reading:
    """One attempt at reading a lane; `mark` is the last mark given."""

    def __init__(self, spec: TaskSpec, lane: Lane, task: int) -> None:
        self._spec, self._lane, self._task, self._source = spec, lane, task, spec.pipeline.source
        self._encoding, self._stamp = encoding_of(spec.pipeline.transform.has_sql), Stamp(spec.term.epoch, task)
        watermark = self._watermark()
        self.mark = Mark(lane, watermark.position, watermark.cursor)
        self._unmarked, self._marked_at = NO_CHANGES, 0.0
        self._flush = FLUSH_BYTES if spec.target is None else ROOMY_BYTES
        self._ends_at = time.monotonic() + spec.epoch_seconds

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows that the spec asks for."""
        target = self._spec.target
        if target is None:
            return self.follow()
        return self.backfill(target) if isinstance(target, Backfill) else self.drain(target[self._lane])

    def backfill(self, asked: Backfill) -> Iterator[pa.RecordBatch]:
        """The rows of a range with a mark at the end; none if it was delivered."""
        if self.mark.position > self._source.position(asked.ranges[self._lane]):
            return
        assert self._source.snapshot, "only a source with a snapshot has ranges"
        # after a failure, which leads to a stop, rows of any range may have been delivered
        again = bool(self._spec.stops) or self._lane in asked.begun or TaskContext.get().attemptNumber() > 0
        for window in self._until_over(self._source.snapshot.rows(self.mark.cursor, again=again)):
            yield from self.rows_of(Window(window.changes, window.upto, idle=False))

    def follow(self) -> Iterator[pa.RecordBatch]:
        """The windows of an epoch as rows."""
        for window in self._until_over(follow(self._source, self._lane, self.mark.cursor, self._stamp)):
            if self._is_news(window):
                yield from self.rows_of(window)
            if window.upto and time.monotonic() > self._ends_at:
                return

    def drain(self, upto: Cursor) -> Iterator[pa.RecordBatch]:
        """The changes up to a cursor as rows, with marks at intervals and at the end; none if a predecessor has passed it."""
        if self._source.position(upto) <= self.mark.position:
            return
        span = Span(self._lane, self.mark.cursor, upto)
        # no name for what is read: it must end with its last reference, also while an error waits for the delivery
        for window in self._until_over(Window(changes, None, idle=False) for changes in self._source.read(span, self._stamp)):
            passed = self._passed(window.changes)
            yield from self.rows_of(Window(window.changes, passed, idle=passed is not None))  # a mark pushes it through
        if not self._is_over() and self._source.position(upto) > self.mark.position:
            yield from self.rows_of(Window(NO_CHANGES, upto, idle=False))

    def _until_over(self, windows: Iterator[Window]) -> Iterator[Window]:
        """The windows up to a stop, until the task must end. It then must end for good, so that callers can ask again."""
        stop = next((one for one in self._spec.stops if one.lane == self._lane), None)
        for window in stop.cut(windows) if stop else windows:
            reach("reader.read")
            if self._is_over():
                return
            yield window
            reach("reader.yielded")

    def _passed(self, changes: pa.RecordBatch) -> Cursor | None:
        """At intervals, the cursor after these changes, so that the watermark moves even if a condition drops all of them."""
        if not changes.num_rows or time.monotonic() - self._marked_at < SILENCE_SECONDS:
            return None
        last = last_of(changes)
        return self._source.cursor_after(last, self.mark.cursor) if last.ordinal is None else None

    def rows_of(self, window: Window) -> Iterator[pa.RecordBatch]:
        """A window as rows, with a mark if it ends on a commit, and padding to push it through Spark if no change waits."""
        *before, last = cut(self._encoding.seen(window.changes), self._spec.max_row)
        for piece in before:
            yield from self._given(piece)
        if window.upto is None or isinstance(last, Outsize):
            yield from self._given(last)
        if window.upto is None:
            return
        self.mark, self._unmarked = Mark(self._lane, self._source.position(window.upto), window.upto), NO_CHANGES
        self._marked_at = time.monotonic()
        changes = NO_CHANGES if isinstance(last, Outsize) else last
        yield self._encoding.pack(changes, self.mark, self._flush if window.idle else 0)

    def _given(self, piece: pa.RecordBatch | Outsize) -> Iterator[pa.RecordBatch]:
        """Changes without a mark. Raises RowTooLarge for a change above the limit if poison halts the pipeline."""
        if isinstance(piece, Outsize):
            yield from self._aside(piece)
            return
        self._unmarked = piece if piece.num_rows else self._unmarked
        yield self._encoding.pack(piece, None, 0)

    def _aside(self, outsize: Outsize) -> Iterator[pa.RecordBatch]:
        """Pass a change to the writer in a file, and wait until it is removed, since a few of them can fill a disk."""
        if then_of(self._spec.pipeline.sink.retry) == "halt":
            raise refused(outsize.change, self._spec.max_row)
        path = self._spec.put_aside(self._lane, self._task, outsize.row)
        yield self._encoding.aside(path, self._flush)
        yielded_at = time.monotonic()
        while os.path.exists(path) and not self._is_over():
            if time.monotonic() - yielded_at > SILENCE_SECONDS:  # only a write to Spark shows that the writer has ended
                upto = self._given_upto()
                yield self._encoding.pack(NO_CHANGES, Mark(self._lane, self._source.position(upto), upto), self._flush)
                yielded_at = time.monotonic()
            time.sleep(PACE_SECONDS)

    def _given_upto(self) -> Cursor:
        """The cursor after all changes given so far; that of the last mark if others of the last position may come."""
        if not self._unmarked.num_rows:
            return self.mark.cursor
        last = last_of(self._unmarked)
        return self._source.cursor_after(last, self.mark.cursor) if last.ordinal is None else self.mark.cursor

    def is_overtaken(self) -> bool:
        """Whether the watermark, moved by a predecessor or by the copy of the sink, is after all changes given."""
        given = last_position(self._unmarked) if self._unmarked.num_rows else self.mark.position
        return self._watermark().position > int(given)

    def until_delivered(self) -> Iterator[pa.RecordBatch]:
        """Marks, until all changes given so far are delivered."""
        given = self._given_upto()
        while not self._is_over() and self._watermark().position < self._source.position(given):
            yield from self.rows_of(Window(NO_CHANGES, given, idle=True))
            time.sleep(PACE_SECONDS)

    def _is_news(self, window: Window) -> bool:
        """Whether to give a window to the writer: empty ones only at intervals, to wake it."""
        is_silent = time.monotonic() - self._marked_at < SILENCE_SECONDS
        return bool(window.changes.num_rows) or window.upto != self.mark.cursor or not is_silent

    def _is_over(self) -> bool:
        return self._spec.is_stopped() or self._spec.has_failed(self._task)

    def _watermark(self) -> Watermark:
        pipeline = self._spec.pipeline
        watermark = pipeline.state.watermark(pipeline.name, self._lane)
        if watermark is None:
            raise StateLost(
                f"the state store lost the watermark of lane {self._lane} of {pipeline.name} while the pipeline ran",
                "set `state` to the previous store, or choose where to continue: penstock run FILE --from POSITION",
            )
        return watermark
