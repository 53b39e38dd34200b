"""Watching the pipelines of a process: hears their events, and looks at their stores at most once a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock

from penstock.errors import PenstockError
from penstock.event import Event
from penstock.metrics.tally import Tally, counted, moved
from penstock.pipeline import Pipeline
from penstock.source import Reader
from penstock.status import Status, observe

FRESH_SECONDS = 1.0
"""How old a look at the stores may be: however many ask, they are not asked more often."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A pipeline as it is at one moment of the process's clock."""

    at: float
    tally: Tally
    status: Status
    readers: Sequence[Reader]

    @property
    def idle_seconds(self) -> float:
        """For how long it has not been seen to get on."""
        return max(0.0, self.at - self.tally.moved_at)


class Watch:
    """An observer of events, for as many readers as like."""

    def __init__(self, pipelines: Sequence[Pipeline], clock: Callable[[], float] = time.monotonic) -> None:
        self._pipelines, self._clock = pipelines, clock
        self._tallies = {pipeline.name: Tally(moved_at=clock()) for pipeline in pipelines}
        self._seen: dict[str, tuple[Status, Sequence[Reader]]] = {}
        self._looked_at: float | None = None
        self._counting, self._looking = Lock(), Lock()

    def hear(self, event: Event) -> None:
        """Count an event."""
        with self._counting:
            if tally := self._tallies.get(event.pipeline):
                self._tallies[event.pipeline] = counted(tally, event, self._clock())

    def sights(self) -> Sequence[Sight]:
        """How all are now, or were a moment ago."""
        with self._looking:
            if self._looked_at is None or self._clock() - self._looked_at >= FRESH_SECONDS:
                for pipeline in self._pipelines:
                    self._look(pipeline)
                self._looked_at = self._clock()
            return [Sight(self._clock(), self._tallies[name], *seen) for name, seen in self._seen.items()]

    def _look(self, pipeline: Pipeline) -> None:
        before, status = self._seen.get(pipeline.name), observe(pipeline)
        readers: Sequence[Reader] = ()
        with suppress(PenstockError):  # the status says so already
            readers = pipeline.source.readers()
        if before and before[0].position != status.position:  # also where all was filtered out, which no event tells
            with self._counting:
                self._tallies[pipeline.name] = moved(self._tallies[pipeline.name], self._clock())
        self._seen[pipeline.name] = status, readers
