"""Events as lines of a log: for people, or as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from penstock.event import (
    AttemptFailed,
    CallDied,
    CatchingUp,
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
    InFlight,
    LaneClaimed,
    LaneReleased,
    Led,
    LogHeld,
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
    Warned,
)
from penstock.printable import as_json, printable

_SENTENCES: dict[type[Event], str] = {
    StandingBy: "standing by, warm; {holder} leads",
    Led: "leading, epoch {epoch}",
    LaneClaimed: "delivering from position {position} (lane {lane}, attempt {attempt})",
    LaneReleased: "lane {lane} released at position {position}",
    Delivered: "{changes} delivered, up to position {position}",
    DeliveryRetried: "not taken ({reason}); try {tries} failed, next in {wait_seconds:.1f} s",
    InFlight: "{records} records of {keys} keys in flight",
    MessagesReturned: "{messages} not delivered ({reason}): they are marked and sent again",
    ChangeParked: "dead letter: {table} {key} at position {position}: {message}",
    ChangesParked: "{changes} more dead letters: `penstock dead list` has all of them",
    ChangeDropped: "dropped: {table} {key} at position {position}: {message}",
    ChangesWaited: "{changes} parked behind dead letters of their keys",
    ChangesPassed: "{changes} went past dead letters of their keys",
    Warned: "{reason}",
    CallDied: "{message}",
    AttemptFailed: "attempt {attempt} failed: {message}",
    Settled: "{pruned} settled changes pruned below position {position}",
    Unsettled: "delivered changes cannot be settled in the source, whose log grows: {message}; {remedy}",
    SettledAgain: "delivered changes are settled in the source again",
    LogHeld: "{kept} changes are kept for {reader} alone, which stands at {position} and was last seen {silent_seconds:.0f} s ago; "
    "to release it: penstock forget",
    ReaderReleased: "{reader} was released at position {position}: it was last seen {silent_seconds:.0f} s ago",
    TermGone: "term {epoch} is gone: {reason}",
    StateAway: "the state does not work: {code}: {message}; {remedy}",
    StateBack: "the state works again",
    Restarted: "starting again in {wait_seconds:.0f} s after {code}: {message}",
    Halted: "halted by {code}: {message}",
    Stopped: "stopped at position {position}",
    CatchingUp: "far behind, at position {position}: catching up before going live",
    Completed: "done: everything that was there is delivered, up to position {position}",
}


def text_line(event: Event, now: datetime) -> str:
    """The event as a person reads it."""
    sentence = _SENTENCES[type(event)].format(**asdict(event))
    return printable(f"{now.astimezone():%H:%M:%S} {event.level:7} {event.pipeline}: {sentence}")


def json_line(event: Event, now: datetime) -> str:
    """The event as one JSON object."""
    return json_facts(type(event).__name__, event.level, asdict(event), now)


def json_facts(event: str, level: str, facts: Mapping[str, Any], now: datetime) -> str:
    """The same of what is no event of a pipeline."""
    at = now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return as_json({"at": at, "level": level, "event": event, **facts}, separators=(",", ":"))
