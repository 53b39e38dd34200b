"""Watching the pipelines of a process: hears their events, and looks at their stores at most once a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock

from penstock.coordinator import PipelineState
from penstock.errors import PenstockError, StateUnavailable
from penstock.event import Event
from penstock.metrics.tally import Tally, counted, moved
from penstock.pipeline import Pipeline
from penstock.source import Reader, readers_of
from penstock.status import Status, observe, summarise

FRESH_SECONDS = 1.0
"""How old a look at the stores may be: however many ask, they are not asked more often."""

LATE_SECONDS = 2.0
"""How long a look of somebody else is waited for."""

PAST_SECONDS = 60.0
"""After a lane was claimed again, an error without a successor is past after this time."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A pipeline as it is at one moment of the process's clock; its stores as they were at another, None if never seen."""

    at: float
    tally: Tally
    looked_at: float | None
    status: Status
    readers: Sequence[Reader]

    @property
    def error(self) -> tuple[str, str] | None:
        """Code and message of what has not passed yet: as this process heard it, or as the store has it."""
        if self.tally.away:
            return self.tally.away
        if self.tally.error and not self._is_past:
            return self.tally.error
        if error := self.status.last_error:
            return error["code"], error["message"]
        return self.tally.unsettled if self.tally.role == "leading" else None  # settling is the leader's

    @property
    def _is_past(self) -> bool:
        """Whether lanes have been carried for a while since the error: where nothing is to be delivered, no delivery ends it."""
        return self.tally.claimed_at is not None and self.at - self.tally.claimed_at >= PAST_SECONDS

    @property
    def trouble(self) -> str | None:
        """The same in one line."""
        return ": ".join(self.error) if self.error else None

    @property
    def look_seconds(self) -> float:
        """The age of what the stores said."""
        return 0.0 if self.looked_at is None else max(0.0, self.at - self.looked_at)

    @property
    def idle_seconds(self) -> float:
        """For how long it has not been seen to get on."""
        return max(0.0, self.at - self.tally.moved_at)


class Watch:
    """An observer of events, for as many readers as like."""

    def __init__(self, pipelines: Sequence[Pipeline], clock: Callable[[], float] = time.monotonic) -> None:
        self._pipelines, self._clock = pipelines, clock
        self._tallies = {pipeline.name: Tally(moved_at=clock()) for pipeline in pipelines}
        self._seen: dict[str, tuple[float | None, Status, Sequence[Reader]]] = {}
        self._looked_at: float | None = None
        self._counting, self._looking = Lock(), Lock()

    def hear(self, event: Event) -> None:
        """Count an event."""
        with self._counting:
            if tally := self._tallies.get(event.pipeline):
                self._tallies[event.pipeline] = counted(tally, event, self._clock())

    def sights(self) -> Sequence[Sight]:
        """How all are now, or were when they could last be looked at: a slow store delays one request only."""
        if self._looking.acquire(timeout=LATE_SECONDS):
            try:
                self._look_at_all()
            finally:
                self._looking.release()
        seen = {pipeline.name: self._seen.get(pipeline.name) or (None, _unseen(pipeline), ()) for pipeline in self._pipelines}
        return [Sight(self._clock(), self._tallies[name], *found) for name, found in seen.items()]

    def _look_at_all(self) -> None:
        if self._looked_at is None or self._clock() - self._looked_at >= FRESH_SECONDS:
            for pipeline in self._pipelines:
                self._look(pipeline)
            self._looked_at = self._clock()

    def _look(self, pipeline: Pipeline) -> None:
        before, status = self._seen.get(pipeline.name), observe(pipeline)
        readers: Sequence[Reader] = ()
        with suppress(PenstockError):  # the status says so already
            readers = readers_of(pipeline.source)
        if before and _has_moved(pipeline, before[1], status):  # also where all was filtered out, which no event tells
            with self._counting:
                self._tallies[pipeline.name] = moved(self._tallies[pipeline.name], self._clock())
        self._seen[pipeline.name] = self._clock(), status, readers


def _has_moved(pipeline: Pipeline, before: Status, now: Status) -> bool:
    """Whether it got on between two looks. Where rows go back to their table positions move all the same: then what waits tells."""
    if pipeline.source.row_lease:
        return before.backlog is not None and now.backlog is not None and now.backlog < before.backlog
    return bool(before.marks and now.marks) and before.marks != now.marks


def _unseen(pipeline: Pipeline) -> Status:
    """Of one whose stores have not answered yet."""
    return summarise(
        pipeline, PipelineState(), StateUnavailable("its state and its source have not answered yet"), datetime.now(UTC)
    )
