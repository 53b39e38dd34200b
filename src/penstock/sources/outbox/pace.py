"""The pauses between the queries of a reader. Pure."""

from __future__ import annotations

GATHER = 0.003  # seconds from one query to the next, under load
LEAST = 0.0003  # seconds of pause, however long a query and its delivery have taken


def rest(looked: float, now: float) -> float:
    """Seconds to wait after a query that found messages."""
    return max(LEAST, looked + GATHER - now)
