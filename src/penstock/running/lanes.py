"""The lanes that a pipeline reads now: new lanes appear, and a lane that is delivered to its end is over."""

from __future__ import annotations

from contextlib import suppress

from penstock.change import Lane
from penstock.cursor import Watermark
from penstock.errors import SourceUnavailable, StateUnavailable
from penstock.pipeline import Pipeline
from penstock.progress.batch_target import covers
from penstock.source import Source


def open_lanes(pipeline: Pipeline) -> frozenset[Lane]:
    """The lanes that have undelivered changes, or may get some."""
    source = pipeline.source
    lanes = frozenset(source.lanes())
    if all(source.end(lane) is None for lane in lanes):
        return lanes
    marks = pipeline.state.pipeline_state(pipeline.name).watermarks
    return frozenset(lane for lane in lanes if not is_over(source, lane, marks.get(lane)))


def have_changed(pipeline: Pipeline, known: frozenset[Lane]) -> bool:
    """Whether other lanes are open now; False if source or state cannot be read."""
    with suppress(SourceUnavailable, StateUnavailable):
        return open_lanes(pipeline) != known
    return False


def is_over(source: Source, lane: Lane, mark: Watermark | None) -> bool:
    """Whether a lane has an end, and is delivered up to it."""
    end = source.end(lane)
    return end is not None and mark is not None and covers(source, mark.cursor, end)
