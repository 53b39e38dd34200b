"""An observer of pipelines: it receives their events, and reads their stores at most once a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock

from penstock.coordinator import PipelineState
from penstock.errors import PenstockError, StateUnavailable
from penstock.event import Event
from penstock.metrics.tally import Tally, counted
from penstock.pipeline import Pipeline
from penstock.source import Reader, readers_of
from penstock.status import Status, observe, summarise

FRESH_SECONDS = 1.0
"""The time for which a reading of the stores is reused."""

LATE_SECONDS = 2.0
"""The wait for a reading by another thread."""

PAST_SECONDS = 60.0
"""An error has passed when this time has elapsed since the next claim, without another error."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A pipeline at time `at`, with the status of its stores at time `looked_at`; None before their first answer."""

    at: float
    tally: Tally
    looked_at: float | None
    status: Status
    readers: Sequence[Reader]

    @property
    def error(self) -> tuple[str, str] | None:
        """Code and message of the current error: from events of this process, or from the store."""
        if self.tally.away:
            return self.tally.away
        if self.tally.error and not self._is_past:
            return self.tally.error
        if error := self.status.last_error:
            return error["code"], error["message"]
        return self.tally.unsettled if self.tally.role == "leading" else None  # only the leader settles

    @property
    def _is_past(self) -> bool:
        """Whether lanes have been claimed for a while since the error: without changes, no delivery clears it."""
        return self.tally.claimed_at is not None and self.at - self.tally.claimed_at >= PAST_SECONDS

    @property
    def trouble(self) -> str | None:
        """The current error in one line."""
        return ": ".join(self.error) if self.error else None

    @property
    def look_seconds(self) -> float:
        """The age of the status."""
        return 0.0 if self.looked_at is None else max(0.0, self.at - self.looked_at)

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last observed progress."""
        return max(0.0, self.at - self.tally.moved_at)


class Watch:
    """An observer of events; any number of threads may read it."""

    def __init__(self, pipelines: Sequence[Pipeline], clock: Callable[[], float] = time.monotonic) -> None:
        self._pipelines, self._clock = pipelines, clock
        self._tallies = {pipeline.name: Tally(moved_at=clock()) for pipeline in pipelines}
        self._seen: dict[str, tuple[float | None, Status, Sequence[Reader]]] = {}
        self._looked_at: float | None = None
        self._counting, self._looking = Lock(), Lock()

    def on_event(self, event: Event) -> None:
        """Count an event."""
        with self._counting:
            if tally := self._tallies.get(event.pipeline):
                self._tallies[event.pipeline] = counted(tally, event, self._clock())

    def sights(self) -> Sequence[Sight]:
        """The sights of all pipelines, with the last known status if stores are slow: a slow store delays one thread only."""
        if self._looking.acquire(timeout=LATE_SECONDS):
            try:
                if self._looked_at is None or self._clock() - self._looked_at >= FRESH_SECONDS:
                    for pipeline in self._pipelines:
                        self._look(pipeline)
                    self._looked_at = self._clock()
            finally:
                self._looking.release()
        seen = {pipeline.name: self._seen.get(pipeline.name) or (None, _unseen(pipeline), ()) for pipeline in self._pipelines}
        return [Sight(self._clock(), self._tallies[name], *found) for name, found in seen.items()]

    def _look(self, pipeline: Pipeline) -> None:
        before, status = self._seen.get(pipeline.name), observe(pipeline)
        readers: Sequence[Reader] = ()
        with suppress(PenstockError):  # the status has the error
            readers = readers_of(pipeline.source)
        if before and _has_moved(pipeline, before[1], status):  # also if all changes were filtered out, for which there is no event
            with self._counting:
                self._tallies[pipeline.name] = replace(self._tallies[pipeline.name], moved_at=self._clock())
        self._seen[pipeline.name] = self._clock(), status, readers


def _has_moved(pipeline: Pipeline, before: Status, now: Status) -> bool:
    """Whether there was progress between two readings. Where rows are leased, a reset moves positions but not the backlog."""
    if pipeline.source.row_lease:
        return before.backlog is not None and now.backlog is not None and now.backlog < before.backlog
    return bool(before.marks and now.marks) and before.marks != now.marks


def _unseen(pipeline: Pipeline) -> Status:
    """The status before the first answer of the stores."""
    return summarise(
        pipeline, PipelineState(), StateUnavailable("the state and the source have not answered yet"), datetime.now(UTC)
    )
