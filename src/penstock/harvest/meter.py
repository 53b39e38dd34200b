"""A counter of delivered records. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MeterStats:
    """A reading of a meter; rates are per second, times are those of the clock of the caller."""

    name: str
    start: float
    total_count: int
    total_rate: float
    interval_count: int
    interval_rate: float


class Meter:
    """Counts records, and returns a reading once per interval, including idle intervals."""

    def __init__(self, name: str, interval: float, now: float) -> None:
        self._name, self._interval, self._start, self._since = name, interval, now, now
        self._total = self._lately = 0

    def add(self, records: int) -> None:
        """Count delivered records."""
        self._total += records
        self._lately += records

    def read(self, now: float) -> MeterStats | None:
        """The reading at the end of an interval; None before."""
        if now - self._since < self._interval or now <= self._since:
            return None
        stats = MeterStats(
            self._name,
            self._start,
            self._total,
            self._total / (now - self._start),
            self._lately,
            self._lately / (now - self._since),
        )
        self._since, self._lately = now, 0
        return stats
