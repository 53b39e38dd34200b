"""The target of a batch: the heads seen at its start, whichever process delivers up to them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial

from penstock.change import Lane
from penstock.cursor import Cursor, Watermark
from penstock.errors import SourceUnavailable, StateUnavailable
from penstock.pipeline import Pipeline
from penstock.progress.watermark import at_watermark
from penstock.source import ANONYMOUS, Source, Span, ranges_at

Target = Mapping[Lane, Cursor]
"""The head of every lane."""

BACKLOG = 100_000
"""A backlog of at least this size is delivered faster by a batch than live."""


class Batch:
    """The progress of a pipeline towards the heads that its source had at the first look."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline, self._source = pipeline, pipeline.source
        self._target: Target | None = None
        self._is_early = False

    def is_done(self) -> bool:
        """Whether the target is delivered, by any process. Raises if the source no longer continues at the watermarks."""
        try:
            reached = self._watermarks()
            if self._target is None:
                self._target = targets(self._source)
                # a snapshot may come first, and the target lies after its rows
                self._is_early = not has_begun(self._source, self._target, reached)
            if not is_reached(self._source, self._target, reached):
                return False
            confirm(self._pipeline)
        except (SourceUnavailable, StateUnavailable):
            return False  # the next look tries again
        return True

    def target(self) -> Target:
        """The end of a query that begins at the watermarks."""
        confirm(self._pipeline)
        head, reached = targets(self._source), self._watermarks()
        if self._target is None or self._is_early or is_stale(self._source, self._target, reached):
            self._target, self._is_early = head, False
        return self._target

    def _watermarks(self) -> Mapping[Lane, Watermark]:
        return self._pipeline.state.pipeline_state(self._pipeline.name).watermarks


def heads(source: Source) -> Target:
    """The current head of every lane."""
    return {lane: source.head(lane) for lane in source.lanes()}


def targets(source: Source) -> Target:
    """The target of a batch that begins now."""
    leases = source.row_lease
    return {lane: leases.target(lane) for lane in source.lanes()} if leases else heads(source)


def catch_up(pipeline: Pipeline) -> Target | None:
    """The target of the batch that precedes going live; None with a small backlog."""
    source, marks = pipeline.source, pipeline.state.pipeline_state(pipeline.name).watermarks
    target = targets(source)
    is_comparable = has_begun(source, target, marks) and not is_stale(source, target, marks)
    waiting = sum(_waiting(pipeline, lane) for lane in target) if is_comparable else 0
    return target if waiting >= BACKLOG else None


def _waiting(pipeline: Pipeline, lane: Lane) -> int:
    """The backlog of a lane, up to BACKLOG; 0 if it is unknown."""
    found = at_watermark(pipeline, lane, partial(pipeline.source.backlog, lane, most=BACKLOG))
    return found[1].changes or 0 if found else 0


def has_begun(source: Source, lanes: Iterable[Lane], watermarks: Mapping[Lane, Watermark]) -> bool:
    """Whether each of these lanes is read from its log, with no rows of a snapshot left."""
    return all(lane in watermarks and not ranges_at(source, watermarks[lane].cursor) for lane in lanes)


def is_reached(source: Source, target: Target, watermarks: Mapping[Lane, Watermark]) -> bool:
    """Whether every lane has been delivered up to the target."""
    return has_begun(source, target, watermarks) and all(
        covers(source, watermarks[lane].cursor, head) for lane, head in target.items()
    )


def is_stale(source: Source, target: Target, watermarks: Mapping[Lane, Watermark]) -> bool:
    """Whether a target belongs to an earlier incarnation of the source."""
    return any(
        source.incarnation(target[lane]) != source.incarnation(watermarks[lane].cursor) for lane in target.keys() & watermarks
    )


def covers(source: Source, reached: Cursor, wanted: Cursor) -> bool:
    """Whether a cursor is at or after another one of the same incarnation."""
    return source.incarnation(reached) == source.incarnation(wanted) and source.position(reached) >= source.position(wanted)


def confirm(pipeline: Pipeline) -> None:
    """Raise the error of the source if it no longer continues at the watermarks."""
    source = pipeline.source
    for lane in source.lanes():
        at_watermark(pipeline, lane, partial(prove, source, lane))


def prove(source: Source, lane: Lane, cursor: Cursor) -> None:
    """Raise the error of the source if it no longer continues at the cursor, which reading an empty span shows."""
    deque(source.read(Span(lane, cursor, cursor), ANONYMOUS), maxlen=0)
