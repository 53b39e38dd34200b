"""The health of a pipeline: a pure decision on the events of the process and the status in the stores."""

from __future__ import annotations

from penstock.metrics.watch import Sight

STALLED_SECONDS = 60.0
"""The default time after which a leader with a backlog and without progress is stalled."""

OLD_SECONDS = 30.0
"""The greatest permitted age of the status."""


def ailment(seen: Sight, stalled_seconds: float = STALLED_SECONDS) -> str | None:
    """The reason why a pipeline is unhealthy; None if it is healthy. A ready standby is healthy."""
    role, status, error = seen.tally.role, seen.status, seen.trouble
    if role in ("starting", "stopped"):
        return f"{role}: this process does not run the pipeline{_last(error)}"
    if role == "halted":
        return f"halted by {error or 'an unknown error'}"
    if role == "completed":
        return None
    if blindness := _blindness(seen):
        return blindness
    if role == "leading" and is_stalled(seen, stalled_seconds):
        waiting = "changes" if status.backlog is None else f"{status.backlog} changes"
        return f"stalled: {waiting} wait, none was delivered for {seen.idle_seconds:.0f} s{_last(error)}"
    return None


def _last(error: str | None) -> str:
    return f"; last error: {error}" if error else ""


def _blindness(seen: Sight) -> str | None:
    if seen.look_seconds > OLD_SECONDS:
        return f"unknown: the state and the source last answered {seen.look_seconds:.0f} s ago"
    return f"{seen.status.error['code']}: {seen.status.error['message']}" if seen.status.error else None


def is_stalled(seen: Sight, seconds: float) -> bool:
    """Whether changes have waited for this time without progress; a high lag with progress is a backlog that shrinks."""
    has_waited = seen.status.backlog != 0 and (seen.status.lag_seconds or 0.0) >= seconds
    return has_waited and seen.idle_seconds >= seconds
