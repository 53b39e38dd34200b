"""The sink that accepts every change and stores none."""

from __future__ import annotations

import pyarrow as pa

from penstock.change import Change, from_batch
from penstock.settings import settings
from penstock.sink import Assignment, Sink


@settings
class DiscardSink(Sink):
    """Without settings."""

    def open(self, assignment: Assignment) -> DiscardDelivery:
        """Start a delivery."""
        return DiscardDelivery()


class DiscardDelivery:
    """Every change is durable at once."""

    def __init__(self) -> None:
        self._last: pa.RecordBatch | None = None

    def offer(self, changes: pa.RecordBatch, wait: float) -> bool:
        """Take the changes."""
        if changes.num_rows:
            self._last = changes.slice(changes.num_rows - 1)
        return True

    def delivered(self) -> Change | None:
        """The last change offered."""
        return next(from_batch(self._last)) if self._last is not None else None

    def drain(self, wait: float) -> bool:
        """Nothing is ever pending."""
        return True

    def close(self) -> None:
        """There is nothing to stop."""
