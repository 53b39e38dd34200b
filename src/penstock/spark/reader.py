"""The reading half of a task: follow a lane, or read it up to a target, and give its changes to Spark, with marks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TypeVar

import pyarrow as pa
from pyspark import TaskContext

from penstock.backfill import Backfill
from penstock.change import NO_CHANGES, Lane, last_of, last_position
from penstock.cursor import Cursor, Watermark
from penstock.errors import Directive, PenstockError, SourcePruned, StateLost
from penstock.failpoint import reach
from penstock.following import follow
from penstock.poison.policy import then_of
from penstock.source import Span, Stamp, Window
from penstock.spark.encoding import encoding_of
from penstock.spark.outsize import Outsize, cut, refused
from penstock.spark.rows import FLUSH_BYTES, ROOMY_BYTES, Mark
from penstock.spark.task_spec import TaskSpec

T = TypeVar("T")

PACE_SECONDS = 0.05
SILENCE_SECONDS = 0.4


def read(spec: TaskSpec, lane: Lane) -> Iterator[pa.RecordBatch]:
    """Rows of an epoch, or of a batch."""
    task = TaskContext.get().taskAttemptId()
    with spec.reporting(task):
        yield from _read(spec, lane, task)


def _read(spec: TaskSpec, lane: Lane, task: int) -> Iterator[pa.RecordBatch]:
    """Rows from the watermark on, until the epoch is over or the target reached, the writer fails, or somebody asks to stop."""
    if not spec.await_term():
        # a stream without a single batch is an error to its writer
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
            if error.directive is Directive.HALT:  # a person may skip what raised it, and must not skip what came before
                yield from reading.until_delivered()
            raise
        return


class Reading:
    """One attempt at reading one lane; `mark` is the last one given."""

    def __init__(self, spec: TaskSpec, lane: Lane, task: int) -> None:
        self._spec, self._lane, self._task, self._source = spec, lane, task, spec.pipeline.source
        self._encoding = encoding_of(spec.pipeline.transform.has_sql)
        watermark = self._watermark()
        self.mark = Mark(lane, watermark.position, watermark.cursor)
        self._unmarked, self._marked_at = NO_CHANGES, 0.0
        self._flush = FLUSH_BYTES if spec.target is None else ROOMY_BYTES
        self._ends_at = time.monotonic() + spec.epoch_seconds

    def rows(self) -> Iterator[pa.RecordBatch]:
        """What the spec asks for."""
        target = self._spec.target
        if target is None:
            return self.follow()
        return self.backfill(target) if isinstance(target, Backfill) else self.drain(target[self._lane])

    def backfill(self, asked: Backfill) -> Iterator[pa.RecordBatch]:
        """The rows of a range, with one mark at their end, unless it was delivered already."""
        if self.mark.position > self._source.position(asked.ranges[self._lane]):
            return
        assert self._source.snapshot, "only a source with a snapshot has ranges"
        again = self._lane in asked.begun or TaskContext.get().attemptNumber() > 0
        for window in self._until_over(self._stopped(self._source.snapshot.rows(self.mark.cursor, again=again))):
            yield from self.rows_of(Window(window.changes, window.upto, idle=False))

    def follow(self) -> Iterator[pa.RecordBatch]:
        """The windows of the epoch as rows."""
        for window in self._until_over(self._windows()):
            if self._is_news(window):
                yield from self.rows_of(window)
            if window.upto and time.monotonic() > self._ends_at:
                return

    def drain(self, upto: Cursor) -> Iterator[pa.RecordBatch]:
        """Everything up to there as rows, with marks now and then and at the end; nothing if a predecessor has passed it."""
        if self._source.position(upto) <= self.mark.position:
            return
        for changes in self._until_over(self._changes(Span(self._lane, self.mark.cursor, upto))):
            passed = self._passed(changes)
            yield from self.rows_of(Window(changes, passed, idle=passed is not None))  # nothing else may be left to push it
        if not self._is_over() and self._source.position(upto) > self.mark.position:
            yield from self.rows_of(Window(NO_CHANGES, upto, idle=False))

    def _until_over(self, given: Iterator[T]) -> Iterator[T]:
        """These, until the task is asked to end, which is final: a caller that asks again gets the same answer."""
        for one in given:
            reach("reader.read")
            if self._is_over():
                return
            yield one
            reach("reader.yielded")

    def _windows(self) -> Iterator[Window]:
        return self._stopped(follow(self._source, self._lane, self.mark.cursor, self._stamp))

    def _changes(self, span: Span) -> Iterator[pa.RecordBatch]:
        batches = self._source.read(span, self._stamp)
        return self._spec.stop_before.cut_batches(batches) if self._spec.stop_before else batches

    def _stopped(self, windows: Iterator[Window]) -> Iterator[Window]:
        return self._spec.stop_before.cut(windows) if self._spec.stop_before else windows

    @property
    def _stamp(self) -> Stamp:
        return Stamp(self._spec.term.epoch, self._task)

    def _passed(self, changes: pa.RecordBatch) -> Cursor | None:
        """Now and then the cursor behind these, so that the watermark moves though a condition may drop them all."""
        if not changes.num_rows or time.monotonic() - self._marked_at < SILENCE_SECONDS:
            return None
        last = last_of(changes)
        return self._source.cursor_after(last, self.mark.cursor) if last.ordinal is None else None

    def rows_of(self, window: Window) -> Iterator[pa.RecordBatch]:
        """A window as rows, with a mark where it ends on a commit, and where nothing waits behind it what pushes it through."""
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
        """Changes without a mark after them. Raises RowTooLarge of one that is, where poison halts."""
        if isinstance(piece, Outsize):
            yield from self._aside(piece)
            return
        self._unmarked = piece if piece.num_rows else self._unmarked
        yield self._encoding.pack(piece, None, 0)

    def _aside(self, outsize: Outsize) -> Iterator[pa.RecordBatch]:
        """Hand a change to the writer in a file; waits until that is done with it, since a few of them may fill a disk."""
        if then_of(self._spec.pipeline.sink.retry) == "halt":
            raise refused(outsize.change, outsize.size, self._spec.max_row or 0)
        path = self._spec.put_aside(self._lane, self._task, outsize.row)
        yield self._encoding.aside(path, self._flush)
        yielded_at = time.monotonic()
        while os.path.exists(path) and not self._is_over():
            if time.monotonic() - yielded_at > SILENCE_SECONDS:  # that the writer is gone shows only in writing to Spark
                upto = self._given_upto()
                yield self._encoding.pack(NO_CHANGES, Mark(self._lane, self._source.position(upto), upto), self._flush)
                yielded_at = time.monotonic()
            time.sleep(PACE_SECONDS)

    def _given_upto(self) -> Cursor:
        """The cursor behind everything given so far; that of the last mark, where others of its position may come."""
        if not self._unmarked.num_rows:
            return self.mark.cursor
        last = last_of(self._unmarked)
        return self._source.cursor_after(last, self.mark.cursor) if last.ordinal is None else self.mark.cursor

    def is_overtaken(self) -> bool:
        """Whether more was recorded than this attempt has given: of its predecessor, or what the sink had kept."""
        given = last_position(self._unmarked) if self._unmarked.num_rows else self.mark.position
        return self._watermark().position > int(given)

    def until_delivered(self) -> Iterator[pa.RecordBatch]:
        """Marks, until everything given so far is delivered."""
        given = self.mark.cursor
        if self._unmarked.num_rows:
            given = self._source.cursor_after(last_of(self._unmarked), since=given)
        while not self._is_over() and self._watermark().position < self._source.position(given):
            yield from self.rows_of(Window(NO_CHANGES, given, idle=True))
            time.sleep(PACE_SECONDS)

    def _is_news(self, window: Window) -> bool:
        """Whether the writer needs to hear of it: also of nothing now and then, since it looks about when something comes."""
        is_silent = time.monotonic() - self._marked_at < SILENCE_SECONDS
        return bool(window.changes.num_rows) or window.upto != self.mark.cursor or not is_silent

    def _is_over(self) -> bool:
        return self._spec.is_stopped() or self._spec.has_failed(self._task)

    def _watermark(self) -> Watermark:
        pipeline = self._spec.pipeline
        watermark = pipeline.state.watermark(pipeline.name, self._lane)
        if watermark is None:
            raise StateLost(f"lane {self._lane} of {pipeline.name} lost its watermark while the pipeline ran")
        return watermark
