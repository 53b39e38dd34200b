"""What one process has seen of a pipeline: counted from its events, never on the path of the changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.event import (
    AttemptFailed,
    CallDied,
    ChangeDropped,
    ChangeParked,
    ChangesParked,
    ChangesPassed,
    ChangesWaited,
    Completed,
    Delivered,
    DeliveryRetried,
    Event,
    Halted,
    LaneClaimed,
    Led,
    MessagesReturned,
    ReaderReleased,
    Restarted,
    Settled,
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
    """Counts since the process began.

    By the monotonic clock: `moved_at` is when the pipeline was last seen to get on, `claimed_at` when a lane was first claimed
    after the error.
    """

    role: Role = "starting"
    moved_at: float = 0.0
    delivered: int = 0
    retries: int = 0
    parked: int = 0
    waited: int = 0
    passed: int = 0
    dropped: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    restarts: Counter[str] = field(default_factory=Counter)
    terms: int = 0
    lost_terms: int = 0
    pruned: int = 0
    released: int = 0
    error: tuple[str, str] | None = None
    claimed_at: float | None = None
    unsettled: tuple[str, str] | None = None
    away: tuple[str, str] | None = None


def counted(tally: Tally, event: Event, now: float) -> Tally:
    """The tally with this event in it."""
    if role := _ROLES.get(type(event)):
        tally = replace(tally, role=role)
    if isinstance(event, Led | StandingBy | TermGone | Completed):
        tally = replace(tally, error=None)  # of an errand that is over
    match event:
        case Led():
            tally = replace(tally, terms=tally.terms + 1, moved_at=now)
        case Delivered(changes=changes):
            tally = replace(tally, delivered=tally.delivered + changes, moved_at=now, error=None)
        case LaneClaimed() if tally.error and tally.claimed_at is None:
            tally = replace(tally, claimed_at=now)
        case DeliveryRetried() | MessagesReturned():
            tally = replace(tally, retries=tally.retries + 1)
        case AttemptFailed(code=code, message=message) | CallDied(code=code, message=message):
            claimed_at = now if isinstance(event, CallDied) else None  # its successor has told
            tally = replace(tally, failed=tally.failed + Counter([code]), error=(code, message), claimed_at=claimed_at)
        case Restarted(code=code, message=message):
            tally = replace(tally, restarts=tally.restarts + Counter([code]), error=(code, message), claimed_at=None)
        case TermGone():
            tally = replace(tally, lost_terms=tally.lost_terms + 1)
        case Halted(code=code, message=message):
            tally = replace(tally, error=(code, message), claimed_at=None, away=None)
        case StateAway(code=code, message=message):
            tally = replace(tally, away=(code, message))
        case StateBack():
            tally = replace(tally, away=None)
    return _settled(_poisoned(tally, event), event)


def _poisoned(tally: Tally, event: Event) -> Tally:
    match event:
        case ChangeParked():
            return replace(tally, parked=tally.parked + 1)
        case ChangesParked(changes=changes):
            return replace(tally, parked=tally.parked + changes)
        case ChangesWaited(changes=changes):
            return replace(tally, waited=tally.waited + changes)
        case ChangesPassed(changes=changes):
            return replace(tally, passed=tally.passed + changes)
        case ChangeDropped():
            return replace(tally, dropped=tally.dropped + 1)
    return tally


def _settled(tally: Tally, event: Event) -> Tally:
    match event:
        case Settled(pruned=pruned):
            return replace(tally, pruned=tally.pruned + pruned)
        case Unsettled(code=code, message=message):
            return replace(tally, unsettled=(code, message))
        case SettledAgain():
            return replace(tally, unsettled=None)
        case ReaderReleased():
            return replace(tally, released=tally.released + 1)
    return tally


def moved(tally: Tally, now: float) -> Tally:
    """The tally of a pipeline that was just seen to get on."""
    return replace(tally, moved_at=now)
