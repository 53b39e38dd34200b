"""The number of delivered changes, for the state store and for events."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import pyarrow as pa

from penstock.change import Place, last_place, places
from penstock.coordinator import Tally
from penstock.poison.policy import Poison

_LAST = 1 << 62
"""A bound above all ordinals."""


class Meter:
    """Counts the changes that are durable and were not kept back.

    Events count a change when it is durable. The store counts it in one step with the watermark, since changes after the
    watermark are sent again after a crash.
    """

    def __init__(self, poison: Poison) -> None:
        self._poison, self._dropped, self._passed = poison, 0, 0
        self._handed, self._durable = deque[pa.RecordBatch](), deque[pa.RecordBatch]()
        self._kept: list[Place] = []
        self._unrecorded = self._untold = 0
        self._rate = 0.0

    def hand(self, run: pa.RecordBatch) -> None:
        """Count a run that was handed to the sink."""
        self._handed.append(run)

    def reach(self, place: Place) -> None:
        """Count the changes up to a place as durable."""
        kept = self._poison.reach(place)
        for run in _take(self._handed, place):
            self._durable.append(run)
            self._untold += run.num_rows
        self._kept += kept
        self._untold -= len(kept)

    def tally(self, position: int, trouble: Mapping[str, str] | None = None) -> Tally:
        """The counts for the store to add with a watermark at this position."""
        upto = position, _LAST
        kept = sum(place <= upto for place in self._kept)
        self._unrecorded += sum(run.num_rows for run in _take(self._durable, upto)) - kept
        self._kept = [place for place in self._kept if place > upto]
        self._poison.settle(position)
        self._tally = Tally(
            delivered=max(0, self._unrecorded),
            rate=self._rate,
            dropped=self._poison.dropped - self._dropped,
            passed=self._poison.passed - self._passed,
            trouble=trouble,
        )
        return self._tally

    def recorded(self) -> None:
        """Note that the store has added the last tally."""
        self._unrecorded -= self._tally.delivered
        self._dropped += self._tally.dropped
        self._passed += self._tally.passed

    def report(self, seconds: float) -> int:
        """The number of changes delivered since the last call, `seconds` ago."""
        told = max(0, self._untold)
        self._untold -= told
        self._rate = told / seconds
        return told


def _take(runs: deque[pa.RecordBatch], upto: Place) -> list[pa.RecordBatch]:
    """Remove and return the changes up to a place from the front of runs."""
    taken = []
    while runs and last_place(runs[0]) <= upto:
        taken.append(runs.popleft())
    if runs and (count := sum(at <= upto for at in places(runs[0]))):  # a request may end inside a run
        taken.append(runs[0].slice(0, count))
        runs[0] = runs[0].slice(count)
    return taken
