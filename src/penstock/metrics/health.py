"""Whether a pipeline is well: a pure decision from what the process has seen and what the stores say."""

from __future__ import annotations

from penstock.metrics.watch import Sight

STALLED_SECONDS = 60.0
"""How long a leader may have changes waiting and get nowhere, where nobody says otherwise."""


OLD_SECONDS = 30.0
"""How old what the stores said may be."""


def ailment(seen: Sight, stalled_seconds: float = STALLED_SECONDS) -> str | None:
    """What is wrong with a pipeline; None if it is well, which for one that stands by means: ready."""
    role, status, error = seen.tally.role, seen.status, seen.trouble
    if role in ("starting", "stopped"):
        return f"{role}: this process does not carry it{_last(error)}"
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
        return f"unknown: its state and its source were last seen {seen.look_seconds:.0f} s ago, and have not answered since"
    return f"{seen.status.error['code']}: {seen.status.error['message']}" if seen.status.error else None


def is_stalled(seen: Sight, seconds: float) -> bool:
    """Whether something has waited for so long and nothing got on; the age alone may be that of a backlog being worked off."""
    has_waited = seen.status.backlog != 0 and (seen.status.lag_seconds or 0.0) >= seconds
    return has_waited and seen.idle_seconds >= seconds
