"""The state that the records of the state topic produce. Pure, and the same in every process that reads the same records.

A record is a request; the records before it decide whether it is granted. A late request is not granted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.coordinators.kafka import letters
from penstock.coordinators.kafka.letters import Letters, Numbers
from penstock.coordinators.letters import alter, take
from penstock.cursor import Cursor, Watermark

Request = Mapping[str, Any]

VERSION = 3
"""The version of records and checkpoints; earlier ones are readable."""
WRITERS = 4096
"""Number of processes whose late requests are recognised."""
PENDING = 16
"""Most requests that may be under way in parts."""
OF_TERM = ("epoch", "holder", "seat", "error")
"""Fields of an entry that a checkpoint stores unchanged."""


@dataclass(slots=True)
class LaneEntry:
    """One lane: its watermark, the claim that may move it, the seat of its holder (none: released), and its counts."""

    cursor: str
    position: int
    delivered: int | None = None
    epoch: int = 0
    attempt: int = -1
    seat: str | None = None
    beat: int = 0
    counted: list[int] = field(default_factory=lambda: [0, 0, 0])
    total: int = 0
    rate: float = 0.0
    at: float | None = None
    trouble: dict[str, str] | None = None

    @property
    def watermark(self) -> Watermark:
        """The watermark of the lane."""
        return Watermark(Cursor(self.cursor), self.position, self.delivered)


@dataclass(slots=True)
class PipelineEntry:
    """One pipeline: its term (no seat: no process leads), lanes, letters and totals."""

    epoch: int = 0
    holder: str | None = None
    seat: str | None = None
    error: dict[str, str] | None = None
    lanes: dict[str, LaneEntry] = field(default_factory=dict)
    letters: Letters = field(default_factory=Letters)

    def is_led(self, epoch: int) -> bool:
        """Whether this term is the current one."""
        return self.seat is not None and self.epoch == epoch


class StateMachine:
    """All pipelines of one state topic."""

    def __init__(self) -> None:
        self.pipelines: dict[str, PipelineEntry] = {}
        self._numbers = Numbers()
        self._writers: dict[str, int] = {}
        self._pending: dict[str, list[str]] = {}

    def of(self, pipeline: str) -> PipelineEntry:
        """The entry of a pipeline; an empty one for a new pipeline."""
        return self.pipelines.get(pipeline) or PipelineEntry()

    def apply(self, request: Request, offset: int) -> Any:
        """Grant or refuse the request at this offset; returns its result."""
        by, number = request["by"], request["n"]
        if number <= self._writers.get(by, -1):
            return None  # its writer has abandoned it
        self._writers.pop(by, None)
        self._writers[by] = number
        if len(self._writers) > WRITERS:
            del self._writers[next(iter(self._writers))]
        return _DEEDS[request["do"]](self, request, offset)

    def add_part(self, part: Request) -> str | None:
        """The text of a request in parts, once the last part has arrived."""
        if part["index"] == 0:
            self._pending[part["id"]] = []
            if len(self._pending) > PENDING:
                del self._pending[next(iter(self._pending))]
        parts = self._pending.get(part["id"])
        if parts is None or len(parts) != part["index"]:
            return None
        parts.append(part["text"])
        return "".join(self._pending.pop(part["id"])) if len(parts) == part["of"] else None

    def written(self) -> dict[str, Any]:
        """The whole state as JSON."""
        pipelines = {
            name: {
                **{key: getattr(entry, key) for key in OF_TERM},
                **entry.letters.counts,
                "lanes": {lane: asdict(facts) for lane, facts in entry.lanes.items()},
                "letters": [letters.written(letter) for letter in entry.letters.all()],
            }
            for name, entry in self.pipelines.items()
        }
        return {"pipelines": pipelines, "letters": self._numbers.last, "writers": self._writers, "pending": self._pending}

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> StateMachine:
        """The state machine of this JSON."""
        machine = cls()
        machine._numbers = Numbers(facts["letters"])
        machine._writers, machine._pending = dict(facts["writers"]), dict(facts["pending"])
        for name, entry in facts["pipelines"].items():
            of_term = {key: entry[key] for key in OF_TERM}
            counts = {key: entry[key] for key in ("dropped", "passed", "redriven")}
            lanes = {lane: LaneEntry(**found) for lane, found in entry["lanes"].items()}
            parked = Letters(machine._numbers, map(letters.read, entry["letters"]), **counts)
            machine.pipelines[name] = PipelineEntry(**of_term, lanes=lanes, letters=parked)
        return machine

    # The requests. Each returns its result: usually whether it was granted.

    def _take(self, asked: Request, offset: int) -> int | None:
        """The epoch of a term is the offset of the record that took it."""
        entry = self.pipelines.setdefault(asked["pipeline"], PipelineEntry(letters=Letters(self._numbers)))
        if entry.epoch != asked["over"]:
            return None
        entry.epoch, entry.holder, entry.seat, entry.error = offset, asked["holder"], asked["seat"], None
        return offset

    def _resign(self, asked: Request, offset: int) -> bool:
        entry = self.of(asked["pipeline"])
        if not entry.is_led(asked["epoch"]) or entry.seat != asked["seat"]:
            return False
        entry.seat = None
        return True

    def _step_of_leader(self, asked: Request, offset: int) -> bool:
        """A change under a term; False if that is not the current one."""
        entry = self.of(asked["pipeline"])
        if is_led := entry.is_led(asked["epoch"]):
            _UNDER_TERM[asked["do"]](self, entry, asked)
        return is_led

    def _place(self, entry: PipelineEntry, asked: Request) -> None:
        marks = asked["marks"] if asked["do"] == "place_all" else {asked["lane"]: asked["mark"]}
        for name, (cursor, position, delivered) in marks.items():
            lane = entry.lanes.setdefault(name, LaneEntry(cursor, position, delivered))
            lane.cursor, lane.position, lane.delivered = cursor, position, delivered
        heir = entry.lanes[next(iter(marks))]
        for gone in asked["gone"]:
            if gone not in marks and gone in entry.lanes:
                heir.total += entry.lanes.pop(gone).total

    def _forget(self, entry: PipelineEntry, asked: Request) -> None:
        parked = Letters(self._numbers)
        self.pipelines[asked["pipeline"]] = PipelineEntry(entry.epoch, entry.holder, entry.seat, letters=parked)

    def _halt(self, entry: PipelineEntry, asked: Request) -> None:
        entry.error = asked["error"]

    def _note(self, entry: PipelineEntry, asked: Request) -> None:
        for lane in entry.lanes.values():
            lane.trouble = asked["trouble"]

    def _register(self, asked: Request, offset: int) -> bool:
        entry = self.of(asked["pipeline"])
        lane = entry.lanes.get(asked["lane"])
        if not lane or not entry.is_led(asked["epoch"]) or (lane.epoch, lane.attempt) >= (asked["epoch"], asked["attempt"]):
            return False
        lane.epoch, lane.attempt, lane.seat, lane.beat = asked["epoch"], asked["attempt"], asked["seat"], offset
        lane.counted = [0, 0, 0]
        return True

    def _advance(self, asked: Request, offset: int) -> bool:
        entry, lane = self._claimed(asked)
        if not lane:
            return False
        cursor, position, delivered = asked["mark"]
        if position >= lane.position:
            lane.cursor, lane.position = cursor, position
        lane.delivered = max((one for one in (lane.delivered, delivered) if one is not None), default=None)
        fresh = [max(0, now - before) for now, before in zip(asked["counted"], lane.counted, strict=True)]
        lane.counted = [before + more for before, more in zip(lane.counted, fresh, strict=True)]
        lane.total += fresh[0]
        entry.letters.count(dropped=fresh[1], passed=fresh[2])
        lane.rate, lane.at, lane.beat, lane.trouble = asked["rate"], asked["at"], offset, asked.get("trouble")
        return True

    def _release(self, asked: Request, offset: int) -> bool:
        lane = self.of(asked["pipeline"]).lanes.get(asked["lane"])
        if lane and (lane.epoch, lane.attempt) == (asked["epoch"], asked["attempt"]):
            lane.seat = None
        return True

    def _step_of_claim(self, asked: Request, offset: int) -> Any:
        """A step with letters under a claim; False if that is not the current one."""
        entry, lane = self._claimed(asked)
        return lane is not None and take(asked["do"], entry.letters, [*map(letters.read, asked["letters"])])

    def _step_of_operator(self, asked: Request, offset: int) -> bool:
        """A step with one letter, whatever its pipeline; False if it is gone."""
        how = {name: asked[name] for name in ("force", "redriven") if name in asked}
        found = (entry.letters for entry in self.pipelines.values() if asked["number"] in entry.letters)
        return any(alter(asked["do"], storage, asked["number"], **how) for storage in found)

    def claims(self, pipeline: str, lane: str, epoch: int, attempt: int) -> bool:
        """Whether this claim is the current one."""
        entry = self.of(pipeline)
        found = entry.lanes.get(lane)
        return found is not None and entry.is_led(epoch) and (found.epoch, found.attempt) == (epoch, attempt)

    def _claimed(self, asked: Request) -> tuple[PipelineEntry, LaneEntry | None]:
        entry = self.of(asked["pipeline"])
        is_current = self.claims(asked["pipeline"], asked["lane"], asked["epoch"], asked["attempt"])
        return entry, entry.lanes[asked["lane"]] if is_current else None


_UNDER_TERM: Mapping[str, Callable[[StateMachine, PipelineEntry, Request], None]] = {
    "place": StateMachine._place,
    "place_all": StateMachine._place,
    "forget": StateMachine._forget,
    "halt": StateMachine._halt,
    "note": StateMachine._note,
}

_DEEDS: Mapping[str, Callable[[StateMachine, Request, int], Any]] = {
    "take": StateMachine._take,
    "resign": StateMachine._resign,
    "register": StateMachine._register,
    "advance": StateMachine._advance,
    "release": StateMachine._release,
    **dict.fromkeys(_UNDER_TERM, StateMachine._step_of_leader),
    **dict.fromkeys(("park", "give_back", "follow"), StateMachine._step_of_claim),
    **dict.fromkeys(("hold", "remove"), StateMachine._step_of_operator),
}
