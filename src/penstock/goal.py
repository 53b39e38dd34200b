"""Where a batch ends: at the heads that were seen when it began, whoever delivers up to there."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial

from penstock.change import Lane
from penstock.cursor import Cursor, Watermark
from penstock.errors import SourceUnavailable, StateUnavailable
from penstock.pipeline import Pipeline
from penstock.settling import at_watermark
from penstock.source import Source, Span, is_own

Goal = Mapping[Lane, Cursor]
"""The head of every lane."""


BACKLOG = 100_000
"""So many changes are carried faster by a batch, which has not to hurry with each of them, than live."""


class Batch:
    """A pipeline that is to be carried up to where its source ended at the first look."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline, self._source = pipeline, pipeline.source
        self._goal: Goal | None = None
        self._is_early = False

    def is_done(self) -> bool:
        """Whether all of it is delivered, by whomever; raises if the source no longer continues where that ended."""
        try:
            reached = self._watermarks()
            if self._goal is None:
                self._goal = goals(self._source)
                self._is_early = not has_begun(self._source, reached)  # rows may come first, and the goal lies behind them
            if not is_reached(self._source, self._goal, reached):
                return False
            confirm(self._pipeline)
        except (SourceUnavailable, StateUnavailable):
            return False  # the next look is soon enough
        return True

    def goal(self) -> Goal:
        """Where the query is to end that begins at the watermark."""
        confirm(self._pipeline)
        head, reached = goals(self._source), self._watermarks()
        if self._goal is None or self._is_early or is_stale(self._source, self._goal, reached):
            self._goal, self._is_early = head, False
        return self._goal

    def _watermarks(self) -> Mapping[Lane, Watermark]:
        found = self._pipeline.state.standing(self._pipeline.name).watermarks
        return {lane: found[lane] for lane in self._source.lanes() if lane in found}


def heads(source: Source) -> Goal:
    """Where the source ends now."""
    return {lane: source.head(lane) for lane in source.lanes()}


def goals(source: Source) -> Goal:
    """Where a batch ends that begins now."""
    return {lane: source.goal(lane) for lane in source.lanes()} if is_own(source) else heads(source)


def catch_up(pipeline: Pipeline) -> Goal | None:
    """Where a live pipeline that is far behind should be before it goes live; None where it is near."""
    source, marks = pipeline.source, pipeline.state.standing(pipeline.name).watermarks
    goal = goals(source)
    is_comparable = has_begun(source, marks) and not is_stale(source, goal, marks)
    behind = sum(_behind(source, lane, marks[lane], goal[lane]) for lane in goal) if is_comparable else 0
    return goal if behind >= BACKLOG else None


def _behind(source: Source, lane: Lane, mark: Watermark, goal: Cursor) -> int:
    if is_own(source):
        return source.backlog(lane, mark.cursor).changes
    return source.position(goal) - mark.position


def has_begun(source: Source, watermarks: Mapping[Lane, Watermark]) -> bool:
    """Whether every lane is carried from its log, so that no rows that were there already are still to come."""
    return all(lane in watermarks and not source.ranges(watermarks[lane].cursor) for lane in source.lanes())


def is_reached(source: Source, goal: Goal, watermarks: Mapping[Lane, Watermark]) -> bool:
    """Whether every lane has been delivered up to there."""
    return has_begun(source, watermarks) and all(covers(source, watermarks[lane].cursor, head) for lane, head in goal.items())


def is_stale(source: Source, goal: Goal, watermarks: Mapping[Lane, Watermark]) -> bool:
    """Whether a goal lies in a life of the source that is over."""
    return any(source.incarnation(goal[lane]) != source.incarnation(watermarks[lane].cursor) for lane in goal.keys() & watermarks)


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
    deque(source.read(Span(lane, cursor, cursor)), maxlen=0)
