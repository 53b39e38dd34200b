"""The reading half of a live epoch: follow a lane, give its changes to Spark, push them through with marks."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from penstock.change import Lane
from penstock.errors import StateLost
from penstock.failpoint import reach
from penstock.source import Window
from penstock.spark.errand import Errand
from penstock.spark.rows import NOTHING, Mark, flush, with_marks
from penstock.spark.session import FLUSH_BYTES


def follow(errand: Errand, lane: Lane) -> Iterator[pa.RecordBatch]:
    """Rows from the watermark on, until the epoch is over, the writer fails, or somebody asks to stop."""
    source, task = errand.pipeline.source, TaskContext.get().taskAttemptId()
    watermark = errand.pipeline.state.watermark(errand.pipeline.name, lane)
    if watermark is None:
        raise StateLost(f"lane {lane} of {errand.pipeline.name} lost its watermark while the pipeline ran")
    yield from push(Mark(lane, watermark.position, watermark.cursor))
    ends_at = time.monotonic() + errand.epoch_seconds
    for window in source.follow(lane, watermark.cursor):
        reach("reader.read")
        if errand.is_stopped() or errand.has_failed(task):
            return
        yield from rows(errand, lane, window)
        reach("reader.yielded")
        if window.upto and time.monotonic() > ends_at:
            return


def rows(errand: Errand, lane: Lane, window: Window) -> Iterator[pa.RecordBatch]:
    """A window as rows; where it ends on a commit its mark follows, and where nothing waits behind, the flush."""
    if window.changes.num_rows:
        yield with_marks(window.changes)
    if window.upto:
        mark = Mark(lane, errand.pipeline.source.position(window.upto), window.upto)
        yield from push(mark) if window.idle else [flush(mark, 0)]


def push(mark: Mark) -> Iterator[pa.RecordBatch]:
    """A mark that takes everything before it along to the writer."""
    yield flush(mark, FLUSH_BYTES)
    yield NOTHING


