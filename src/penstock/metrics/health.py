"""Whether a pipeline is well: a pure decision from what the process has seen and what the stores say."""

from __future__ import annotations

from penstock.metrics.tally import Tally
from penstock.status import Status

STALLED_SECONDS = 60.0
"""How long a leader may have changes waiting and get nowhere, where nobody says otherwise."""


def ailment(tally: Tally, status: Status, now: float, stalled_seconds: float = STALLED_SECONDS) -> str | None:
    """What is wrong with a pipeline; None if it is well, which for one that stands by means: ready."""
    if tally.role in ("starting", "stopped"):
        return f"{tally.role}: this process does not carry it"
    if tally.role == "halted":
        return "halted by " + ": ".join(tally.error or ("an unknown error",))
    if tally.role == "completed":
        return None
    if status.error:
        return f"{status.error['code']}: {status.error['message']}"
    if tally.role == "leading" and is_stalled(tally, status, now, stalled_seconds):
        why = f"; last error: {': '.join(tally.error)}" if tally.error else ""
        return f"stalled: {status.backlog} changes wait, none was delivered for {now - tally.moved_at:.0f} s{why}"
    return None


def is_stalled(tally: Tally, status: Status, now: float, seconds: float) -> bool:
    """Whether something has waited for so long and nothing got on; the age alone may be that of a backlog being worked off."""
    has_waited = bool(status.backlog) and (status.lag_seconds or 0.0) >= seconds
    return has_waited and now - tally.moved_at >= seconds
