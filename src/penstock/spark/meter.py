"""How many changes were delivered, for the store's tally and for people."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import pyarrow as pa

from penstock.change import last_place, places
from penstock.coordinator import Tally
from penstock.poison import Poison
from penstock.progress import Place


class Meter:
    """Counts what was delivered, run by run, for the store's tally and for people: what is durable and was not kept back."""

    def __init__(self, poison: Poison) -> None:
        self._poison, self._dropped, self._passed = poison, 0, 0
        self._runs: deque[pa.RecordBatch] = deque()
        self._unrecorded = self._untold = 0
        self._rate = 0.0

    def hand(self, run: pa.RecordBatch) -> None:
        """This run was handed to the sink."""
        self._runs.append(run)

    def reach(self, place: Place) -> None:
        """Everything up to here is durable."""
        rows = 0
        while self._runs and last_place(self._runs[0]) <= place:
            rows += self._runs.popleft().num_rows
        if self._runs and (done := sum(at <= place for at in places(self._runs[0]))):  # a request may end inside a run
            self._runs[0] = self._runs[0].slice(done)
            rows += done
        delivered = rows - self._poison.reach(place)
        self._unrecorded += delivered
        self._untold += delivered

    def tally(self, trouble: Mapping[str, str] | None = None) -> Tally:
        """What the store has not heard of yet."""
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
