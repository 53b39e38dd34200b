"""Events: each class has the level and sentence of its log line, and the metric that counts it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, dataclass_transform


@dataclass(frozen=True, slots=True)
class Counter:
    """A metric that counts events: by one each or by their field `adds`, and separately for each value of their field `label`."""

    name: str
    help: str
    adds: str | None = None
    label: str | None = None

    def of(self, event: Event) -> dict[tuple[str, str], int]:
        """What an event adds, by the name of the metric and its label."""
        return {(self.name, getattr(event, self.label) if self.label else ""): getattr(event, self.adds) if self.adds else 1}


RETRIES = Counter("penstock_delivery_retries_total", "Requests that were not taken and are sent again.")
PARKED = Counter("penstock_parked_changes_total", "Changes that became dead letters.")
FAILURES = Counter("penstock_attempts_failed_total", "Attempts of workers that ended with an error.", label="code")


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events: the pipeline it happened in. The log shows the sentence, with the fields in it."""

    level: ClassVar[str] = "info"
    sentence: ClassVar[str]
    counter: ClassVar[Counter | None] = None
    pipeline: str

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    @property
    def text(self) -> str:
        """The sentence of this event."""
        return self.sentence.format(**asdict(self))


class StandingBy(Event):
    """Another process leads; this one is warm and waits."""

    sentence = "standing by, warm; {holder} leads"
    holder: str


class Led(Event):
    """This process leads the pipeline from now on."""

    sentence = "leading, epoch {epoch}"
    counter = Counter("penstock_terms_total", "Terms that this process won.")
    epoch: int
    holder: str


class LaneClaimed(Event):
    """A worker holds a lane and delivers on from a position."""

    sentence = "delivering from position {position} (lane {lane}, attempt {attempt})"
    lane: str
    epoch: int
    attempt: int
    position: int


class LaneReleased(Event):
    """A worker has let its lane go; its progress up to there is recorded unless an error says otherwise."""

    sentence = "lane {lane} released at position {position}"
    lane: str
    position: int


class Delivered(Event):
    """Progress of a lane since the last such event."""

    sentence = "{changes} delivered, up to position {position}"
    counter = Counter("penstock_delivered_changes_total", "Changes delivered.", adds="changes")
    lane: str
    changes: int
    position: int


class DeliveryRetried(Event):
    """The far side did not take a batch; it is sent again after a while."""

    level = "warning"
    sentence = "not taken ({reason}); try {tries} failed, next in {wait_seconds:.1f} s"
    counter = RETRIES
    reason: str
    tries: int
    wait_seconds: float


class InFlight(Event):
    """So many records, of so many keys, were sent and are not settled yet."""

    level = "debug"
    sentence = "{records} records of {keys} keys in flight"
    records: int
    keys: int


class MessagesReturned(Event):
    """Messages could not be delivered and went back to their table, to be marked and sent again."""

    level = "warning"
    sentence = "{messages} not delivered ({reason}): they are marked and sent again"
    counter = RETRIES
    messages: int
    reason: str


class ChangeParked(Event):
    """A change is poison and has become a dead letter; the pipeline goes on."""

    level = "warning"
    sentence = "dead letter: {table} {key} at position {position}: {message}"
    counter = PARKED
    position: int
    table: str
    key: str
    code: str
    message: str


class ChangesParked(Event):
    """So many more became dead letters in the same moment as those that are told of one by one."""

    level = "warning"
    sentence = "{changes} more dead letters: `penstock dead list` has all of them"
    counter = replace(PARKED, adds="changes")
    changes: int


class ChangeDropped(Event):
    """A change is poison and was dropped, as `then: drop` says; the pipeline goes on."""

    level = "warning"
    sentence = "dropped: {table} {key} at position {position}: {message}"
    counter = Counter("penstock_dropped_changes_total", "Changes that were given up.")
    position: int
    table: str
    key: str
    code: str
    message: str


class ChangesWaited(Event):
    """Changes were parked behind a dead letter of their key."""

    level = "debug"
    sentence = "{changes} parked behind dead letters of their keys"
    counter = Counter("penstock_waited_changes_total", "Changes parked behind a dead letter of their key.", adds="changes")
    changes: int


class ChangesPassed(Event):
    """Changes went on past a dead letter of their key, as `keys: go-on` says."""

    level = "debug"
    sentence = "{changes} went past dead letters of their keys"
    counter = Counter("penstock_passed_changes_total", "Changes that went on past one.", adds="changes")
    changes: int


class Warned(Event):
    """A setting is possible and yet hardly meant."""

    level = "warning"
    sentence = "{reason}"
    reason: str


class AttemptFailed(Event):
    """A worker's attempt ended with an error; Spark or the driver decides what follows."""

    level = "warning"
    sentence = "attempt {attempt} failed: {message}"
    counter = FAILURES
    code: str
    message: str
    attempt: int


class CallDied(Event):
    """The function ended its worker process, or had to be ended, on a change; `tries` counts how often."""

    level = "warning"
    sentence = "{message}"
    counter = FAILURES
    position: int
    table: str
    key: str
    tries: int
    code: str
    message: str


class Settled(Event):
    """The source was told what it may forget."""

    level = "debug"
    sentence = "{pruned} settled changes pruned below position {position}"
    counter = Counter("penstock_pruned_changes_total", "Delivered changes that the source forgot.", adds="pruned")
    position: int
    pruned: int


class Unsettled(Event):
    """The source cannot note how far the pipeline has come, nor forget anything; delivery goes on."""

    level = "warning"
    sentence = "delivered changes cannot be settled in the source, whose log grows: {message}; {remedy}"
    code: str
    message: str
    remedy: str


class SettledAgain(Event):
    """The source can note and forget again."""

    sentence = "delivered changes are settled in the source again"


class LogHeld(Event):
    """The log is kept for another pipeline that is gone for longer than `source.retain` allows."""

    level = "warning"
    sentence = (
        "{kept} changes are kept for {reader} alone, which stands at {position} and was last seen "
        "{silent_seconds:.0f} s ago; to release it: penstock forget"
    )
    reader: str
    position: int
    kept: int
    silent_seconds: float


class ReaderReleased(Event):
    """Another pipeline was gone for longer than `source.retain` allows, and the log is no longer kept for it."""

    level = "warning"
    sentence = "{reader} was released at position {position}: it was last seen {silent_seconds:.0f} s ago"
    counter = Counter("penstock_readers_released_total", "Other pipelines no longer waited for.")
    reader: str
    position: int
    silent_seconds: float


class TermGone(Event):
    """This process no longer leads; `fenced`: it stood down by itself."""

    level = "warning"
    sentence = "term {epoch} is gone: {reason}"
    counter = Counter("penstock_terms_lost_total", "Terms that this process lost to another.")
    epoch: int
    reason: str
    fenced: bool = False


class StateAway(Event):
    """The state cannot be read or written: no term can be renewed or taken until it can."""

    level = "warning"
    sentence = "the state does not work: {code}: {message}; {remedy}"
    code: str
    message: str
    remedy: str


class StateBack(Event):
    """The state can be read and written again."""

    sentence = "the state works again"


class Restarted(Event):
    """The query failed in a way that may pass, and is started again."""

    level = "warning"
    sentence = "starting again in {wait_seconds:.0f} s after {code}: {message}"
    counter = Counter("penstock_restarts_total", "Queries started again after an error.", label="code")
    code: str
    message: str
    wait_seconds: float


class Halted(Event):
    """The pipeline stopped on an error and waits for a person."""

    level = "error"
    sentence = "halted by {code}: {message}"
    code: str
    message: str
    remedy: str


class Stopped(Event):
    """The pipeline was asked to stop, and has."""

    sentence = "stopped at position {position}"
    position: int | None


class CatchingUp(Event):
    """A live pipeline is far behind: what is there goes first, as a batch."""

    sentence = "far behind, at position {position}: catching up before going live"
    position: int | None


class Completed(Event):
    """A batch has come to its end: what there was when it began is delivered, by this process or by another."""

    sentence = "done: everything that was there is delivered, up to position {position}"
    position: int | None


Observer = Callable[[Event], None]

SHOWN = 1000
"""Characters of each text of an event that is too large to send: at worst 12 bytes each as JSON."""

_KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in Event.__subclasses__()}

COUNTERS = tuple({kind.counter.name: kind.counter for kind in _KINDS.values() if kind.counter}.values())
"""Each metric once."""


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
