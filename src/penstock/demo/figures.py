"""The figures of the demo."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.demo.arrivals import Arrival

LOOKS_PER_BAR = 2
"""The number of looks for each entry of `backlogs`, which is their maximum."""


@dataclass(slots=True)
class Outage:
    """A time in which the receiver failed, and the time to deliver its backlog."""

    broke_at: float
    repaired_at: float | None = None
    awaited: int = 0  # the last position that was committed before the repair
    drained_at: float | None = None

    def covers(self, at: float) -> bool:
        """Whether the outage contains this time."""
        return self.broke_at <= at and (self.repaired_at is None or at < self.repaired_at)

    @property
    def seconds(self) -> float:
        """The length of the outage."""
        return (self.repaired_at or self.broke_at) - self.broke_at

    @property
    def drain_seconds(self) -> float | None:
        """The time from the repair until the backlog was delivered."""
        return None if self.drained_at is None or self.repaired_at is None else self.drained_at - self.repaired_at


@dataclass(slots=True)
class Figures:
    """Counts of arrivals. `latencies` are the latest ones, `calm` those of changes outside of outages."""

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
        """The number of arrivals without repeats."""
        return self.arrived - self.repeats

    def take(self, arrival: Arrival) -> None:
        """Count an arrival."""
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
        """Note the number of committed changes."""
        self.backlog = max(0, committed - self.delivered)
        self.most_waiting = max(self.most_waiting, self.backlog)
        self._looks += 1
        if self._looks % LOOKS_PER_BAR:
            self.backlogs.append(self.backlog)
        else:
            self.backlogs[-1] = max(self.backlogs[-1], self.backlog)

    def broke(self, at: float) -> None:
        """Note the begin of an outage."""
        self.outage = Outage(at)

    def repaired(self, at: float, awaited: int) -> None:
        """Note the end of an outage; changes up to position `awaited` were committed before it."""
        if self.outage and self.outage.repaired_at is None:
            self.outage.repaired_at, self.outage.awaited = at, awaited


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The value that this percentage of the values does not exceed."""
    if not values:
        return None
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]
