"""The changes that arrived at the receiver, and the figures of the demo."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from penstock.testing.request import Record, Request

LOOKS_PER_BAR = 2
"""The number of looks for each entry of `backlogs`, which is their maximum."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A change in a request that the receiver accepted."""

    change: dict[str, Any]
    received_at: float
    is_repeat: bool

    @property
    def position(self) -> int:
        """The position in the log."""
        return int(self.change["position"])

    @property
    def committed_at(self) -> float:
        """The time of the change, from the log."""
        return datetime.fromisoformat(self.change["at"]).timestamp()

    @property
    def latency(self) -> float:
        """Seconds from the change to its receipt, by the clock of this machine."""
        return max(0.0, self.received_at - self.committed_at)


class Arrivals:
    """The arrivals in the file of a receiver."""

    def __init__(self, out: Path) -> None:
        self._record, self._highest = Record(out), 0

    def read(self) -> list[Arrival]:
        """The arrivals since the last read."""
        return [arrival for request in self._record.new() if request.is_taken for arrival in self._of(request)]

    def _of(self, request: Request) -> Iterator[Arrival]:
        for change in request.changes():
            yield Arrival(change, request.at, change["position"] <= self._highest)
            self._highest = max(self._highest, change["position"])


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
    """Counts of arrivals; `delivered` omits repeats. `latencies` are the latest, `calm` those of changes outside of outages."""

    delivered: int = 0
    repeats: int = 0
    most_waiting: int = 0
    outage: Outage | None = None
    recent: deque[Arrival] = field(default_factory=lambda: deque(maxlen=8))
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=500))
    calm: deque[float] = field(default_factory=lambda: deque(maxlen=100_000))
    backlogs: deque[int] = field(default_factory=lambda: deque([0], maxlen=72))
    backlog: int = 0
    _looks: int = 0

    def take(self, arrival: Arrival) -> None:
        """Count an arrival."""
        self.recent.append(arrival)
        if arrival.is_repeat:
            self.repeats += 1
            return
        self.delivered += 1
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
