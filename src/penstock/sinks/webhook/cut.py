"""When a batch goes."""

from __future__ import annotations

from penstock.sinks.webhook.sink import Batch


def due_in(waiting: int, waited: float, batch: Batch, is_urgent: bool = False) -> float | None:
    """Seconds until the next batch goes, 0 for at once, None while nothing waits.

    `waiting` changes are there, the first of them since `waited` seconds. This is asked whenever a line is free, so what
    grew old during the last request goes at once, all that has come with it.
    """
    if not waiting:
        return None
    if is_urgent or waiting >= batch.size:
        return 0.0
    return max(0.0, batch.delay.total_seconds() - waited)
