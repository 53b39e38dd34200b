"""The events of a harvest: those of goharvest, and the meter of one of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class LeaderAcquired:
    """The harvest became the leader; the id is unique."""

    leader_id: UUID


@dataclass(frozen=True, slots=True)
class LeaderRefreshed:
    """The leader marks rows again after a failure."""

    leader_id: UUID


@dataclass(frozen=True, slots=True)
class LeaderRevoked:
    """Another harvest became the leader in an orderly way."""


@dataclass(frozen=True, slots=True)
class LeaderFenced:
    """The leader resigned because its heartbeats did not return."""


@dataclass(frozen=True, slots=True)
class MeterStats:
    """A reading of a meter; rates are per second, times are those of the clock of the caller."""

    name: str
    start: float
    total_count: int
    total_rate: float
    interval_count: int
    interval_rate: float


@dataclass(frozen=True, slots=True)
class MeterRead:
    """The delivered records."""

    stats: MeterStats


HarvestEvent = LeaderAcquired | LeaderRefreshed | LeaderRevoked | LeaderFenced | MeterRead


class Meter:
    """Counts delivered records, and returns a reading once per interval, including idle intervals."""

    def __init__(self, name: str, interval: float, now: float) -> None:
        self._name, self._interval, self._start, self._since = name, interval, now, now
        self._total = self._read = 0

    def add(self, records: int) -> None:
        """Count delivered records."""
        self._total += records

    def read(self, now: float) -> MeterStats | None:
        """The reading at the end of an interval; None before."""
        span, total = now - self._since, self._total
        if span < self._interval or span <= 0:
            return None
        recent = total - self._read
        self._since, self._read = now, total
        return MeterStats(self._name, self._start, total, total / (now - self._start), recent, recent / span)
