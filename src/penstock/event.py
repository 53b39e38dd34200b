"""What happened, said once; logs, the terminal and the tests are observers of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events: the pipeline it happened in."""

    level: ClassVar[str] = "info"
    pipeline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingBy(Event):
    """Another process leads; this one is warm and waits."""

    holder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Led(Event):
    """This process leads the pipeline from now on."""

    epoch: int
    holder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneClaimed(Event):
    """A worker holds a lane and delivers on from a position."""

    lane: str
    epoch: int
    attempt: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneReleased(Event):
    """A worker has let its lane go; its progress up to there is recorded unless an error says otherwise."""

    lane: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered(Event):
    """Progress of a lane since the last such event."""

    lane: str
    changes: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRetried(Event):
    """The far side did not take a batch; it is sent again after a while."""

    level = "warning"
    reason: str
    tries: int
    wait_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight(Event):
    """So many records, of so many keys, were sent and are not settled yet."""

    level = "debug"
    records: int
    keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesReturned(Event):
    """Messages could not be delivered and went back to their table, to be marked and sent again."""

    level = "warning"
    messages: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeParked(Event):
    """A change is poison and has become a dead letter; the pipeline goes on."""

    level = "warning"
    position: int
    table: str
    key: str
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesParked(Event):
    """So many more became dead letters in the same moment as those that are told of one by one."""

    level = "warning"
    changes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeDropped(Event):
    """A change is poison and was dropped, as `then: drop` says; the pipeline goes on."""

    level = "warning"
    position: int
    table: str
    key: str
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesWaited(Event):
    """Changes were parked behind a dead letter of their key."""

    level = "debug"
    changes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesPassed(Event):
    """Changes went on past a dead letter of their key, as `keys: go-on` says."""

    level = "debug"
    changes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Event):
    """A setting is possible and yet hardly meant."""

    level = "warning"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed(Event):
    """A worker's attempt ended with an error; Spark or the driver decides what follows."""

    level = "warning"
    code: str
    message: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDied(Event):
    """The function ended its worker process, or had to be ended, on a change; `tries` counts how often."""

    level = "warning"
    position: int
    table: str
    key: str
    tries: int
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled(Event):
    """The source was told what it may forget."""

    level = "debug"
    position: int
    pruned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled(Event):
    """The source cannot note how far the pipeline has come, nor forget anything; delivery goes on."""

    level = "warning"
    code: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledAgain(Event):
    """The source can note and forget again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHeld(Event):
    """The log is kept for another pipeline that is gone for longer than `source.retain` allows."""

    level = "warning"
    reader: str
    position: int
    kept: int
    silent_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderReleased(Event):
    """Another pipeline was gone for longer than `source.retain` allows, and the log is no longer kept for it."""

    level = "warning"
    reader: str
    position: int
    silent_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TermGone(Event):
    """This process no longer leads; `fenced`: it stood down by itself."""

    level = "warning"
    epoch: int
    reason: str
    fenced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StateAway(Event):
    """The state cannot be read or written: no term can be renewed or taken until it can."""

    level = "warning"
    code: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBack(Event):
    """The state can be read and written again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted(Event):
    """The query failed in a way that may pass, and is started again."""

    level = "warning"
    code: str
    message: str
    wait_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Halted(Event):
    """The pipeline stopped on an error and waits for a person."""

    level = "error"
    code: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(Event):
    """The pipeline was asked to stop, and has."""

    position: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchingUp(Event):
    """A live pipeline is far behind: what is there goes first, as a batch."""

    position: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed(Event):
    """A batch has come to its end: what there was when it began is delivered, by this process or by another."""

    position: int | None


Observer = Callable[[Event], None]

SHOWN = 1000
"""Characters of each text of an event that is too large to send: at worst 12 bytes each as JSON."""

_KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in Event.__subclasses__()}


def to_line(event: Event) -> str:
    """An event as one line of JSON."""
    return json.dumps({"event": type(event).__name__, "level": event.level, **asdict(event)}, separators=(",", ":"))


def shortened(event: Event) -> Event:
    """The same with the beginning of each long text."""
    texts = {name: value for name, value in asdict(event).items() if isinstance(value, str) and len(value) > SHOWN}
    return replace(event, **{name: f"{text[:SHOWN]}..." for name, text in texts.items()})


def from_line(line: str) -> Event:
    """The event of such a line."""
    facts = json.loads(line)
    facts.pop("level")
    return _KINDS[facts.pop("event")](**facts)
