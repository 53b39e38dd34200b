"""Telling the source what it may forget, and saying what becomes of others that share its log."""

from __future__ import annotations

from penstock.change import Lane
from penstock.cursor import Watermark
from penstock.errors import SourcePruned, SourceUnavailable, StateUnavailable
from penstock.event import LogHeld, Observer, ReaderReleased, Settled
from penstock.pipeline import Pipeline
from penstock.source import Settlement


class Settling:
    """What a leader does about the source every second."""

    def __init__(self, pipeline: Pipeline, tell: Observer) -> None:
        self._pipeline, self._tell = pipeline, tell
        self._warned_of: set[str] = set()

    def settle(self) -> int:
        """Tell the source how far each lane has come; how much it has forgotten."""
        return sum(map(self._settle, self._pipeline.source.lanes()))

    def _settle(self, lane: Lane) -> int:
        name = self._pipeline.name
        try:
            watermark = self._watermark(lane)
            done = self._settled(lane, watermark) if watermark else Settlement()
        except (SourceUnavailable, StateUnavailable):
            return 0  # the next look is soon enough
        if watermark and done.pruned:
            self._tell(Settled(pipeline=name, position=watermark.position, pruned=done.pruned))
        self._tell_of_others(done)
        return done.pruned

    def _settled(self, lane: Lane, watermark: Watermark) -> Settlement:
        """A leader that was deposed, and does not know, settles too: a later watermark than the one we have read, perhaps."""
        try:
            return self._pipeline.source.settle(self._pipeline.name, lane, watermark.cursor)
        except SourcePruned:
            if self._watermark(lane) == watermark:
                raise
            return Settlement()

    def _watermark(self, lane: Lane) -> Watermark | None:
        return self._pipeline.state.watermark(self._pipeline.name, lane)

    def _tell_of_others(self, done: Settlement) -> None:
        """Say which readers are gone for too long, each once, and which were released."""
        name = self._pipeline.name
        for one in done.overdue:
            if one.pipeline not in self._warned_of:
                self._warned_of.add(one.pipeline)
                self._tell(
                    LogHeld(pipeline=name, reader=one.pipeline, position=one.position, kept=one.kept, silent_seconds=one.silent)
                )
        for one in done.released:
            self._tell(ReaderReleased(pipeline=name, reader=one.pipeline, position=one.position, silent_seconds=one.silent))
