"""The lanes that a pipeline reads now: new lanes appear, and a lane that is delivered to its end is over."""

from __future__ import annotations

from contextlib import suppress

from penstock.change import Lane
from penstock.errors import SourceUnavailable, StateUnavailable
from penstock.pipeline import Pipeline
from penstock.progress.batch_target import covers


def open_lanes(pipeline: Pipeline) -> frozenset[Lane]:
    """The lanes that have undelivered changes, or may get some."""
    source = pipeline.source
    ends = {lane: source.end(lane) for lane in source.lanes()}
    if not any(ends.values()):
        return frozenset(ends)
    marks = pipeline.state.pipeline_state(pipeline.name).watermarks
    over = {lane for lane, end in ends.items() if end and lane in marks and covers(source, marks[lane].cursor, end)}
    return frozenset(ends.keys() - over)


def have_changed(pipeline: Pipeline, known: frozenset[Lane]) -> bool:
    """Whether other lanes are open now; False if source or state cannot be read."""
    with suppress(SourceUnavailable, StateUnavailable):
        return open_lanes(pipeline) != known
    return False
