"""The events of a pipeline in this process as counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from penstock.event import (
    AttemptFailed,
    CallDied,
    Completed,
    Delivered,
    Event,
    Halted,
    LaneClaimed,
    Led,
    Restarted,
    SettledAgain,
    StandingBy,
    StateAway,
    StateBack,
    Stopped,
    TermGone,
    Unsettled,
)

Role = Literal["starting", "leading", "standby", "stopped", "completed", "halted"]
ROLES: tuple[Role, ...] = ("starting", "leading", "standby", "stopped", "completed", "halted")

_ROLES: dict[type[Event], Role] = {
    StandingBy: "standby",
    Led: "leading",
    TermGone: "standby",
    Stopped: "stopped",
    Completed: "completed",
    Halted: "halted",
}


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts since the start of the process, by the name of the metric and its label.

    `moved_at`: the time of the last observed progress; `claimed_at`: the time of the first claim after the error. Both are
    readings of the monotonic clock.
    """

    role: Role = "starting"
    moved_at: float = 0.0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    error: tuple[str, str] | None = None
    claimed_at: float | None = None
    unsettled: tuple[str, str] | None = None
    away: tuple[str, str] | None = None


def counted(tally: Tally, event: Event, now: float) -> Tally:
    """The tally after this event."""
    changed: dict[str, Any] = {}
    if event.counter:
        changed["counts"] = tally.counts + Counter(event.counter.of(event))
    if role := _ROLES.get(type(event)):
        changed["role"] = role
    match event:
        case Led() | Delivered():
            changed |= {"moved_at": now, "error": None}
        case StandingBy() | TermGone() | Completed():
            changed["error"] = None  # it belongs to a query that has ended
        case LaneClaimed() if tally.error and tally.claimed_at is None:
            changed["claimed_at"] = now
        case CallDied(code=code, message=message):
            changed |= {"error": (code, message), "claimed_at": now}  # the successor of the call sends the event
        case AttemptFailed(code=code, message=message) | Restarted(code=code, message=message):
            changed |= {"error": (code, message), "claimed_at": None}
        case Halted(code=code, message=message):
            changed |= {"error": (code, message), "claimed_at": None, "away": None}
        case StateAway(code=code, message=message):
            changed["away"] = code, message
        case StateBack():
            changed["away"] = None
        case Unsettled(code=code, message=message):
            changed["unsettled"] = code, message
        case SettledAgain():
            changed["unsettled"] = None
    return replace(tally, **changed)
