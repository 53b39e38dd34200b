"""What is counted while the demo runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.demo.arrivals import Arrival

LOOKS_PER_BAR = 2
"""How many looks share one entry of `backlogs`, which holds their greatest."""


@dataclass(slots=True)
class Outage:
    """A time in which the receiver did not do its work, and how long it took to make up for it."""

    broke_at: float
    repaired_at: float | None = None
    awaited: int = 0  # the last position that was committed when it was repaired
    drained_at: float | None = None

    def covers(self, at: float) -> bool:
        """Whether this moment lies in it."""
        return self.broke_at <= at and (self.repaired_at is None or at < self.repaired_at)

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return (self.repaired_at or self.broke_at) - self.broke_at

    @property
    def drain_seconds(self) -> float | None:
        """How long what had waited took to arrive after the repair."""
        return None if self.drained_at is None or self.repaired_at is None else self.drained_at - self.repaired_at


@dataclass(slots=True)
class Figures:
    """Counts arrivals. `latencies` are the last ones, `calm` those of changes made while the receiver was well."""

    arrived: int = 0
    repeats: int = 0
    most_waiting: int = 0
    outage: Outage | None = None
    recent: deque[Arrival] = field(default_factory=lambda: deque(maxlen=8))
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=500))
    calm: deque[float] = field(default_factory=lambda: deque(maxlen=100_000))
    backlogs: deque[int] = field(default_factory=lambda: deque([0], maxlen=72))
    backlog: int = 0
    _looks: int = 0

    @property
    def delivered(self) -> int:
        """How many changes have come, repeats not counted."""
        return self.arrived - self.repeats

    def take(self, arrival: Arrival) -> None:
        """One more change has come."""
        self.arrived += 1
        self.repeats += arrival.is_repeat
        self.recent.append(arrival)
        if arrival.is_repeat:
            return
        self.latencies.append(arrival.latency)
        if not (self.outage and self.outage.covers(arrival.committed_at)):
            self.calm.append(arrival.latency)
        if self.outage and self.outage.repaired_at and not self.outage.drained_at and arrival.position >= self.outage.awaited:
            self.outage.drained_at = arrival.received_at

    def look(self, committed: int) -> None:
        """So many changes are committed now."""
        self.backlog = max(0, committed - self.delivered)
        self.most_waiting = max(self.most_waiting, self.backlog)
        self._looks += 1
        if self._looks % LOOKS_PER_BAR:
            self.backlogs.append(self.backlog)
        else:
            self.backlogs[-1] = max(self.backlogs[-1], self.backlog)

    def broke(self, at: float) -> None:
        """The receiver has stopped doing its work."""
        self.outage = Outage(at)

    def repaired(self, at: float, awaited: int) -> None:
        """It does its work again; up to this position everything had to wait."""
        if self.outage and self.outage.repaired_at is None:
            self.outage.repaired_at, self.outage.awaited = at, awaited


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The value that so many percent of these do not exceed."""
    if not values:
        return None
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]
