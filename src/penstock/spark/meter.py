"""How many changes were delivered, for the store's tally and for people."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import pyarrow as pa

from penstock.change import last_place, places
from penstock.coordinator import Tally
from penstock.poison.policy import Poison
from penstock.spark.progress import Place


class Meter:
    """Counts what was delivered, run by run: what is durable and was not kept back.

    People see it as soon as it is durable. The store counts it with the watermark after it, in one step: whatever lies
    after the watermark is sent again after a crash, and counted then.
    """

    def __init__(self, poison: Poison) -> None:
        self._poison, self._dropped, self._passed = poison, 0, 0
        self._handed, self._durable = Runs(), Runs()
        self._kept: list[Place] = []
        self._unrecorded = self._untold = 0
        self._rate = 0.0

    def hand(self, run: pa.RecordBatch) -> None:
        """This run was handed to the sink."""
        self._handed.put(run)

    def reach(self, place: Place) -> None:
        """Everything up to here is durable."""
        kept = self._poison.reach(place)
        for run in self._handed.take(place):
            self._durable.put(run)
            self._untold += run.num_rows
        self._kept += kept
        self._untold -= len(kept)

    def tally(self, position: int, trouble: Mapping[str, str] | None = None) -> Tally:
        """What the store has not counted yet and is to count with a watermark at this position."""
        upto = position, _LAST
        kept = sum(place <= upto for place in self._kept)
        self._unrecorded += sum(run.num_rows for run in self._durable.take(upto)) - kept
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
        """The store has heard it."""
        self._unrecorded -= self._tally.delivered
        self._dropped += self._tally.dropped
        self._passed += self._tally.passed

    def tell(self, seconds: float) -> int:
        """What was delivered in the last so many seconds."""
        told = max(0, self._untold)
        self._untold -= told
        self._rate = told / seconds
        return told


class Runs:
    """Changes in their order, taken from the front."""

    def __init__(self) -> None:
        self._runs: deque[pa.RecordBatch] = deque()

    def put(self, run: pa.RecordBatch) -> None:
        """This run is the last."""
        self._runs.append(run)

    def take(self, upto: Place) -> list[pa.RecordBatch]:
        """What lies up to there."""
        taken = []
        while self._runs and last_place(self._runs[0]) <= upto:
            taken.append(self._runs.popleft())
        if self._runs and (count := sum(at <= upto for at in places(self._runs[0]))):  # a request may end inside a run
            taken.append(self._runs[0].slice(0, count))
            self._runs[0] = self._runs[0].slice(count)
        return taken


_LAST = 1 << 62
"""No ordinal is greater."""
