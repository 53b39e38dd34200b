"""The settings of batches and requests, and the time at which a batch is sent. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, NamedTuple

from penstock.retry import Retry
from penstock.settings import refuse, settings
from penstock.text.duration import Duration
from penstock.text.size import Bytes, Size

MOST_PARALLEL = 64  # requests under way: each has a thread and a connection


@settings
class Batch:
    """The most changes and bytes in one request, and the longest time that the first change waits for others."""

    size: int = 100
    bytes: Size = Bytes(8_000_000)
    delay: Duration = timedelta(milliseconds=5)

    def __post_init__(self) -> None:
        refuse(
            self.size < 1 and f"batch.size is {self.size}: it must be 1 or more",
            self.delay < timedelta(0) and "batch.delay is negative: write 0ms or more",
        )


class Pace(NamedTuple):
    """`parallel` requests, each a batch, and one more for each of at most `bisections` bisections of refused batches."""

    batch: Batch = Batch()
    parallel: int = 1
    bisections: int = 16
    retry: Retry = Retry()

    def complaints(self) -> list[str | Literal[False]]:
        """One complaint for each invalid value."""
        return [
            not 1 <= self.parallel <= MOST_PARALLEL and f"parallel is {self.parallel}: it must be from 1 to {MOST_PARALLEL}",
            not 0 <= self.bisections <= MOST_PARALLEL and f"bisections is {self.bisections}: it must be from 0 to {MOST_PARALLEL}",
        ]


def due_in(waiting: int, waited: float, batch: Batch, is_urgent: bool = False) -> float | None:
    """Seconds until the next batch is sent: 0 for at once, None while nothing waits.

    `waiting` changes wait, the first of them for `waited` seconds. The queue asks whenever a connection is free, so changes that
    became due during the last request are sent at once, with all that arrived meanwhile.
    """
    if not waiting:
        return None
    if is_urgent or waiting >= batch.size:
        return 0.0
    return max(0.0, batch.delay.total_seconds() - waited)
