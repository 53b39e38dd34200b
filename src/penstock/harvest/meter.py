"""How many records were delivered, in all and lately. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MeterStats:
    """What a meter shows; rates are per second, times are those of the clock it was given."""

    name: str
    start: float
    total_count: int
    total_rate: float
    interval_count: int
    interval_rate: float


class Meter:
    """Counts; not asked more often than its interval, it tells of a stall too."""

    def __init__(self, name: str, interval: float, now: float) -> None:
        self._name, self._interval, self._start, self._since = name, interval, now, now
        self._total = self._lately = 0

    def add(self, records: int) -> None:
        """So many more were delivered."""
        self._total += records
        self._lately += records

    def read(self, now: float) -> MeterStats | None:
        """What is to be told now; None while the interval is not over."""
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
