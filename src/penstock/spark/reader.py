"""The reading half of a live epoch: follow a lane, give its changes to Spark, push them through with marks."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from penstock.change import NO_CHANGES, Lane
from penstock.errors import StateLost
from penstock.failpoint import reach
from penstock.source import Window
from penstock.spark.errand import Errand
from penstock.spark.rows import NOTHING, Mark, rows
from penstock.spark.session import FLUSH_BYTES


def follow(errand: Errand, lane: Lane) -> Iterator[pa.RecordBatch]:
    """Rows of an epoch."""
    task = TaskContext.get().taskAttemptId()
    with errand.reporting(task):
        yield from _follow(errand, lane, task)


def _follow(errand: Errand, lane: Lane, task: int) -> Iterator[pa.RecordBatch]:
    """Rows from the watermark on, until the epoch is over, the writer fails, or somebody asks to stop."""
    if errand.is_stopped():
        yield NOTHING  # a stream without a single batch is an error to its writer
        return
    watermark = errand.pipeline.state.watermark(errand.pipeline.name, lane)
    if watermark is None:
        raise StateLost(f"lane {lane} of {errand.pipeline.name} lost its watermark while the pipeline ran")
    yield from rows_of(Window(NO_CHANGES, watermark.cursor, idle=True), errand, lane)
    ends_at = time.monotonic() + errand.epoch_seconds
    for window in errand.pipeline.source.follow(lane, watermark.cursor):
        reach("reader.read")
        if errand.is_stopped() or errand.has_failed(task):
            return
        yield from rows_of(window, errand, lane)
        reach("reader.yielded")
        if window.upto and time.monotonic() > ends_at:
            return


def rows_of(window: Window, errand: Errand, lane: Lane) -> Iterator[pa.RecordBatch]:
    """A window as rows: a mark where it ends on a commit, and where nothing waits behind it, what pushes it through."""
    if window.upto is None:
        yield rows(window.changes)
        return
    mark = Mark(lane, errand.pipeline.source.position(window.upto), window.upto)
    yield rows(window.changes, mark, FLUSH_BYTES if window.idle else 0)
    if window.idle:
        yield NOTHING
