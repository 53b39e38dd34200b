"""Reports of watermarks to the source, which then prunes, and events about other readers of its log."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial

from penstock.change import Lane
from penstock.errors import SourceUnavailable, StateUnavailable
from penstock.event import LogHeld, Observer, ReaderReleased, Settled, SettledAgain, Unsettled
from penstock.ownership import owner_of
from penstock.pipeline import Pipeline
from penstock.progress.watermark import at_watermark
from penstock.source import Retention, Settlement

UNSETTLED_SECONDS = 10.0
"""Seconds for which a source may refuse before an event reports it: a restart of a server takes less."""


class Settling:
    """Settles a pipeline in its source, once a second while it leads."""

    def __init__(self, pipeline: Pipeline, emit: Observer) -> None:
        self._pipeline, self._emit = pipeline, emit
        self._warned_of: set[str] = set()
        self._refused_since: float | None = None
        self._is_refusal_reported = False

    def settle(self, patience: float = UNSETTLED_SECONDS) -> int:
        """Settle each lane in the source; returns the number of pruned changes. `patience`: seconds until a refusal is reported."""
        done, refusal = list[Settlement](), None
        if not (retention := self._pipeline.source.retention):
            return 0
        for lane in self._pipeline.source.lanes():
            try:
                done.append(self._settle(retention, lane))
            except SourceUnavailable as error:
                refusal = error
        if refusal:
            self._refused(refusal, patience)
        elif not all(one.is_put_off for one in done):
            self._taken()
        return sum(one.pruned for one in done)

    def _settle(self, retention: Retention, lane: Lane) -> Settlement:
        """Settle a lane in the source. Raises SourceUnavailable."""
        name = self._pipeline.name
        with suppress(StateUnavailable):  # the next call tries again
            settle = partial(retention.settle, name, lane, owner=owner_of(self._pipeline))
            if settled := at_watermark(self._pipeline, lane, settle):
                watermark, done = settled
                if done.pruned:
                    self._emit(Settled(pipeline=name, position=watermark.position, pruned=done.pruned))
                self._emit_others(done)
                return done
        return Settlement(is_put_off=True)

    def _refused(self, error: SourceUnavailable, patience: float) -> None:
        """Report once that the source cannot be settled, if that lasts: delivery continues and would not show it."""
        now = time.monotonic()
        self._refused_since = now if self._refused_since is None else self._refused_since
        if not self._is_refusal_reported and now - self._refused_since >= patience:
            self._is_refusal_reported = True
            self._emit(Unsettled(pipeline=self._pipeline.name, **error.facts()))

    def _taken(self) -> None:
        if self._is_refusal_reported:
            self._emit(SettledAgain(pipeline=self._pipeline.name))
        self._refused_since, self._is_refusal_reported = None, False

    def _emit_others(self, done: Settlement) -> None:
        """Report the readers that are gone for too long, each once, and the released ones."""
        name = self._pipeline.name
        for one in done.overdue:
            if one.pipeline not in self._warned_of:
                self._warned_of.add(one.pipeline)
                self._emit(
                    LogHeld(pipeline=name, reader=one.pipeline, position=one.position, kept=one.kept, silent_seconds=one.silent)
                )
        for one in done.released:
            self._emit(ReaderReleased(pipeline=name, reader=one.pipeline, position=one.position, silent_seconds=one.silent))
