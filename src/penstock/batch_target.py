"""Where a batch ends: at the heads that were seen when it began, whoever delivers up to there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial

from penstock.change import Lane
from penstock.cursor import Cursor, Watermark
from penstock.errors import SourceUnavailable, StateUnavailable
from penstock.pipeline import Pipeline
from penstock.source import ANONYMOUS, Source, Span, ranges_at
from penstock.watermark import at_watermark

Target = Mapping[Lane, Cursor]
"""The head of every lane."""


BACKLOG = 100_000
"""So many changes are carried faster by a batch, which has not to hurry with each of them, than live."""


class Batch:
    """A pipeline that is to be carried up to where its source ended at the first look."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline, self._source = pipeline, pipeline.source
        self._target: Target | None = None
        self._is_early = False

    def is_done(self) -> bool:
        """Whether all of it is delivered, by whomever; raises if the source no longer continues where that ended."""
        try:
            reached = self._watermarks()
            if self._target is None:
                self._target = targets(self._source)
                self._is_early = not has_begun(
                    self._source, self._target, reached
                )  # rows may come first, and the target lies behind them
            if not is_reached(self._source, self._target, reached):
                return False
            confirm(self._pipeline)
        except (SourceUnavailable, StateUnavailable):
            return False  # the next look is soon enough
        return True

    def target(self) -> Target:
        """Where the query is to end that begins at the watermark."""
        confirm(self._pipeline)
        head, reached = targets(self._source), self._watermarks()
        if self._target is None or self._is_early or is_stale(self._source, self._target, reached):
            self._target, self._is_early = head, False
        return self._target

    def _watermarks(self) -> Mapping[Lane, Watermark]:
        return self._pipeline.state.pipeline_state(self._pipeline.name).watermarks


def heads(source: Source) -> Target:
    """Where the source ends now."""
    return {lane: source.head(lane) for lane in source.lanes()}


def targets(source: Source) -> Target:
    """Where a batch ends that begins now."""
    leases = source.row_lease
    return {lane: leases.target(lane) for lane in source.lanes()} if leases else heads(source)


def catch_up(pipeline: Pipeline) -> Target | None:
    """Where a live pipeline that is far behind should be before it goes live; None where it is near."""
    source, marks = pipeline.source, pipeline.state.pipeline_state(pipeline.name).watermarks
    target = targets(source)
    is_comparable = has_begun(source, target, marks) and not is_stale(source, target, marks)
    waiting = sum(_waiting(pipeline, lane) for lane in target) if is_comparable else 0
    return target if waiting >= BACKLOG else None


def _waiting(pipeline: Pipeline, lane: Lane) -> int:
    """How many changes wait, up to BACKLOG; none where that is unknown."""
    found = at_watermark(pipeline, lane, partial(pipeline.source.backlog, lane, most=BACKLOG))
    return found[1].changes or 0 if found else 0


def has_begun(source: Source, lanes: Iterable[Lane], watermarks: Mapping[Lane, Watermark]) -> bool:
    """Whether each of these lanes is carried from its log, so that no rows that were there already are still to come."""
    return all(lane in watermarks and not ranges_at(source, watermarks[lane].cursor) for lane in lanes)


def is_reached(source: Source, target: Target, watermarks: Mapping[Lane, Watermark]) -> bool:
    """Whether every lane has been delivered up to there."""
    return has_begun(source, target, watermarks) and all(
        covers(source, watermarks[lane].cursor, head) for lane, head in target.items()
    )


def is_stale(source: Source, target: Target, watermarks: Mapping[Lane, Watermark]) -> bool:
    """Whether a target lies in a life of the source that is over."""
    return any(
        source.incarnation(target[lane]) != source.incarnation(watermarks[lane].cursor) for lane in target.keys() & watermarks
    )


def covers(source: Source, reached: Cursor, wanted: Cursor) -> bool:
    """Whether who has come so far has passed that place; places of different lives cannot be compared."""
    return source.incarnation(reached) == source.incarnation(wanted) and source.position(reached) >= source.position(wanted)


def confirm(pipeline: Pipeline) -> None:
    """Raise what is wrong if the source no longer continues at the watermarks."""
    source = pipeline.source
    for lane in source.lanes():
        at_watermark(pipeline, lane, partial(prove, source, lane))


def prove(source: Source, lane: Lane, cursor: Cursor) -> None:
    """Raise what is wrong if the source no longer continues there: reading nothing tells."""
    deque(source.read(Span(lane, cursor, cursor), ANONYMOUS), maxlen=0)
