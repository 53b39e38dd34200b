"""Events: each class has the level and the sentence of its log line, and the metric that counts it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, dataclass_transform


@dataclass(frozen=True, slots=True)
class Counter:
    """A metric that counts events: by one or by their field `adds`, separately for each value of their field `label`."""

    name: str
    help: str
    adds: str | None = None
    label: str | None = None

    def of(self, event: Event) -> dict[tuple[str, str], int]:
        """The increments of an event, by name of the metric and label."""
        return {(self.name, getattr(event, self.label) if self.label else ""): getattr(event, self.adds) if self.adds else 1}


RETRIES = Counter("penstock_delivery_retries_total", "Requests that were not accepted and are sent again.")
PARKED = Counter("penstock_parked_changes_total", "Changes that became dead letters.")
FAILURES = Counter("penstock_attempts_failed_total", "Attempts of workers that ended with an error.", label="code")


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events of a pipeline. The log shows the sentence with the values of the fields."""

    level: ClassVar[str] = "info"
    sentence: ClassVar[str]
    counter: ClassVar[Counter | None] = None
    pipeline: str

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    @property
    def text(self) -> str:
        """The sentence with the values of the fields."""
        return self.sentence.format(**asdict(self))


class StandingBy(Event):
    """Another process leads; this one waits with its query prepared."""

    sentence = "standing by, warm; {holder} leads"
    holder: str


class Led(Event):
    """This process became the leader of the pipeline."""

    sentence = "leading, epoch {epoch}"
    counter = Counter("penstock_terms_total", "Terms that this process won.")
    epoch: int
    holder: str


class LaneClaimed(Event):
    """A worker holds a lane and delivers from a position on."""

    sentence = "delivering from position {position} (lane {lane}, attempt {attempt})"
    lane: str
    epoch: int
    attempt: int
    position: int


class LaneReleased(Event):
    """A worker released its lane; its progress is recorded unless an error reports otherwise."""

    sentence = "lane {lane} released at position {position}"
    lane: str
    position: int


class Delivered(Event):
    """The progress of a lane since the previous event of this kind."""

    sentence = "{changes} delivered, up to position {position}"
    counter = Counter("penstock_delivered_changes_total", "Changes delivered.", adds="changes")
    lane: str
    changes: int
    position: int


class DeliveryRetried(Event):
    """The destination did not accept a batch, which is sent again after a wait."""

    level = "warning"
    sentence = "not taken ({reason}); try {tries} failed, next in {wait_seconds:.1f} s"
    counter = RETRIES
    reason: str
    tries: int
    wait_seconds: float


class InFlight(Event):
    """The records that were sent and are not settled, and the number of their keys."""

    level = "debug"
    sentence = "{records} records of {keys} keys in flight"
    records: int
    keys: int


class MessagesReturned(Event):
    """Undelivered messages were returned to their table, to be marked and sent again."""

    level = "warning"
    sentence = "{messages} not delivered ({reason}): they are marked and sent again"
    counter = RETRIES
    messages: int
    reason: str


class ChangeParked(Event):
    """A change is poison and became a dead letter; the pipeline continues."""

    level = "warning"
    sentence = "dead letter: {table} {key} at position {position}: {message}"
    counter = PARKED
    position: int
    table: str
    key: str
    code: str
    message: str


class ChangesParked(Event):
    """The dead letters of one moment beyond those that have an event each."""

    level = "warning"
    sentence = "{changes} more dead letters: `penstock dead list` has all of them"
    counter = replace(PARKED, adds="changes")
    changes: int


class ChangeDropped(Event):
    """A change is poison and was dropped by `then: drop`; the pipeline continues."""

    level = "warning"
    sentence = "dropped: {table} {key} at position {position}: {message}"
    counter = Counter("penstock_dropped_changes_total", "Changes that were dropped.")
    position: int
    table: str
    key: str
    code: str
    message: str


class ChangesWaited(Event):
    """Changes were parked after a dead letter of their key."""

    level = "debug"
    sentence = "{changes} parked after dead letters of their keys"
    counter = Counter("penstock_waited_changes_total", "Changes parked after a dead letter of their key.", adds="changes")
    changes: int


class ChangesPassed(Event):
    """Changes passed a dead letter of their key, by `keys: go-on`."""

    level = "debug"
    sentence = "{changes} passed dead letters of their keys"
    counter = Counter("penstock_passed_changes_total", "Changes that passed a dead letter of their key.", adds="changes")
    changes: int


class Warned(Event):
    """A setting is legal but probably a mistake."""

    level = "warning"
    sentence = "{reason}"
    reason: str


class AttemptFailed(Event):
    """A worker's attempt ended with an error; Spark or the driver starts another one, or ends the query."""

    level = "warning"
    sentence = "attempt {attempt} failed: {message}"
    counter = FAILURES
    code: str
    message: str
    attempt: int


class CallDied(Event):
    """The function ended its worker process, or exceeded its time limit, on a change; `tries` counts the occurrences."""

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
    """Delivered changes were settled in the source."""

    level = "debug"
    sentence = "{pruned} settled changes pruned below position {position}"
    counter = Counter("penstock_pruned_changes_total", "Delivered changes that the source deleted.", adds="pruned")
    position: int
    pruned: int


class Unsettled(Event):
    """The source can neither record the progress of the pipeline nor delete changes; delivery continues."""

    level = "warning"
    sentence = "delivered changes cannot be settled in the source, whose log grows: {message}; {remedy}"
    code: str
    message: str
    remedy: str


class SettledAgain(Event):
    """The source can record progress and delete changes again."""

    sentence = "delivered changes are settled in the source again"


class LogHeld(Event):
    """The log is kept for another pipeline that has been gone for longer than `source.retain`."""

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
    """Another pipeline was gone for longer than `source.retain`, and the log is no longer kept for it."""

    level = "warning"
    sentence = "{reader} was released at position {position}: it was last seen {silent_seconds:.0f} s ago"
    counter = Counter("penstock_readers_released_total", "Other pipelines for which the log is no longer kept.")
    reader: str
    position: int
    silent_seconds: float


class TermGone(Event):
    """This process no longer leads; `fenced`: it stood down."""

    level = "warning"
    sentence = "term {epoch} was lost: {reason}"
    counter = Counter("penstock_terms_lost_total", "Terms that this process lost to another process.")
    epoch: int
    reason: str
    fenced: bool = False


class StateAway(Event):
    """The state cannot be read or written; until it can, no term is taken or renewed."""

    level = "warning"
    sentence = "the state is unavailable: {code}: {message}; {remedy}"
    code: str
    message: str
    remedy: str


class StateBack(Event):
    """The state can be read and written again."""

    sentence = "the state is available again"


class Restarted(Event):
    """The query failed with an error that may pass, and is started again."""

    level = "warning"
    sentence = "starting again in {wait_seconds:.0f} s after {code}: {message}"
    counter = Counter("penstock_restarts_total", "Queries started again after an error.", label="code")
    code: str
    message: str
    wait_seconds: float


class Halted(Event):
    """The pipeline stopped on an error until an operator acts."""

    level = "error"
    sentence = "halted by {code}: {message}"
    code: str
    message: str
    remedy: str


class Stopped(Event):
    """The pipeline stopped on request."""

    sentence = "stopped at position {position}"
    position: int | None


class CatchingUp(Event):
    """A live pipeline has a large backlog, which is delivered first, as a batch."""

    sentence = "large backlog at position {position}: catching up before going live"
    position: int | None


class Completed(Event):
    """A batch is complete: the changes up to its target are delivered, by this process or by another."""

    sentence = "done: delivered up to position {position}"
    position: int | None


Observer = Callable[[Event], None]

SHOWN = 1000
"""Characters that remain of each text of an event that is too large to send; as JSON each takes up to 12 bytes."""

_KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in Event.__subclasses__()}

COUNTERS = tuple({kind.counter.name: kind.counter for kind in _KINDS.values() if kind.counter}.values())
"""Each metric of the events once."""


def to_line(event: Event) -> str:
    """An event as one line of JSON."""
    return json.dumps({"event": type(event).__name__, "level": event.level, **asdict(event)}, separators=(",", ":"))


def shortened(event: Event) -> Event:
    """The event with each long text cut."""
    texts = {name: value for name, value in asdict(event).items() if isinstance(value, str) and len(value) > SHOWN}
    return replace(event, **{name: f"{text[:SHOWN]}..." for name, text in texts.items()})


def from_line(line: str) -> Event:
    """The event of a line of JSON."""
    facts = json.loads(line)
    facts.pop("level")
    return _KINDS[facts.pop("event")](**facts)
