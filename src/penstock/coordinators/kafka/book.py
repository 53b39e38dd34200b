"""What the records of the state topic add up to. Pure, and the same for everybody who reads the same records.

A record asks for something; whether it is granted follows from the records before it, so everybody knows the same answer. Who is
late asks in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.coordinators.kafka import letters
from penstock.coordinators.kafka.letters import Letters
from penstock.letter import DeadLetter

Request = Mapping[str, Any]

VERSION = 2
"""Of records and checkpoints; earlier ones can be read, too."""
WRITERS = 4096
"""How many processes are remembered, so that nothing of theirs that arrives late and out of order counts."""
PENDING = 16
"""How many requests may be on their way in parts."""


@dataclass(slots=True)
class LaneEntry:
    """One lane: its watermark, the claim that may move it, who holds that (nobody: it was let go), and what it has counted."""

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


@dataclass(slots=True)
class PipelineEntry:
    """One pipeline: its term (no seat: nobody leads), lanes, letters and totals."""

    epoch: int = 0
    holder: str | None = None
    seat: str | None = None
    error: dict[str, str] | None = None
    lanes: dict[str, LaneEntry] = field(default_factory=dict)
    letters: Letters = field(default_factory=Letters)
    dropped: int = 0
    passed: int = 0
    redriven: int = 0

    def is_led(self, epoch: int) -> bool:
        """Whether this term is the current one."""
        return self.seat is not None and self.epoch == epoch


class Book:
    """All pipelines of one state topic."""

    def __init__(self) -> None:
        self.pipelines: dict[str, PipelineEntry] = {}
        self._letters = 0  # so many were ever parked
        self._writers: dict[str, int] = {}
        self._pending: dict[str, list[str]] = {}

    def of(self, pipeline: str) -> PipelineEntry:
        """What is known of a pipeline; an empty entry for a new one."""
        return self.pipelines.get(pipeline) or PipelineEntry()

    def apply(self, request: Request, offset: int) -> Any:
        """Grant this request, which has this offset, or not; answers what its writer wants to know."""
        by, number = request["by"], request["n"]
        if number <= self._writers.get(by, -1):
            return None  # what its writer has given up long ago
        self._writers.pop(by, None)
        self._writers[by] = number
        if len(self._writers) > WRITERS:
            del self._writers[next(iter(self._writers))]
        return _DEEDS[request["do"]](self, request, offset)

    def add_part(self, part: Request) -> str | None:
        """The text of a request that came in parts, once the last of them is there."""
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
        """Everything, as JSON has it."""
        pipelines = {
            name: {
                **{key: getattr(entry, key) for key in ("epoch", "holder", "seat", "error", "dropped", "passed", "redriven")},
                "lanes": {lane: asdict(facts) for lane, facts in entry.lanes.items()},
                "letters": [letters.written(letter) for letter in entry.letters],
            }
            for name, entry in self.pipelines.items()
        }
        return {"pipelines": pipelines, "letters": self._letters, "writers": self._writers, "pending": self._pending}

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Book:
        """The book that was written so."""
        book = cls()
        book._letters, book._writers, book._pending = facts["letters"], dict(facts["writers"]), dict(facts["pending"])
        for name, entry in facts["pipelines"].items():
            lanes = {lane: LaneEntry(**found) for lane, found in entry["lanes"].items()}
            book.pipelines[name] = PipelineEntry(
                **{**entry, "lanes": lanes, "letters": Letters(letters.read_all(entry["letters"]))}
            )
        return book

    # What can be asked for. Each answers what its writer wants to know: by default whether it was granted.

    def _take(self, asked: Request, offset: int) -> int | None:
        """The epoch of a term is the offset of the record that took it."""
        entry = self.pipelines.setdefault(asked["pipeline"], PipelineEntry())
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

    def _place(self, asked: Request, offset: int) -> bool:
        entry = self.of(asked["pipeline"])
        if not entry.is_led(asked["epoch"]):
            return False
        cursor, position, delivered = asked["mark"]
        lane = entry.lanes.setdefault(asked["lane"], LaneEntry(cursor, position, delivered))
        lane.cursor, lane.position, lane.delivered = cursor, position, delivered
        for gone in asked["gone"]:
            if gone != asked["lane"] and gone in entry.lanes:
                lane.total += entry.lanes.pop(gone).total
        return True

    def _forget(self, asked: Request, offset: int) -> bool:
        entry = self.of(asked["pipeline"])
        if not entry.is_led(asked["epoch"]):
            return False
        self.pipelines[asked["pipeline"]] = PipelineEntry(entry.epoch, entry.holder, entry.seat)
        return True

    def _halt(self, asked: Request, offset: int) -> bool:
        entry = self.of(asked["pipeline"])
        if not entry.is_led(asked["epoch"]):
            return False
        entry.error = asked["error"]
        return True

    def _note(self, asked: Request, offset: int) -> bool:
        entry = self.of(asked["pipeline"])
        if not entry.is_led(asked["epoch"]):
            return False
        for lane in entry.lanes.values():
            lane.trouble = asked["trouble"]
        return True

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
        lane.total, entry.dropped, entry.passed = lane.total + fresh[0], entry.dropped + fresh[1], entry.passed + fresh[2]
        lane.rate, lane.at, lane.beat, lane.trouble = asked["rate"], asked["at"], offset, asked.get("trouble")
        return True

    def _release(self, asked: Request, offset: int) -> bool:
        lane = self.of(asked["pipeline"]).lanes.get(asked["lane"])
        if lane and (lane.epoch, lane.attempt) == (asked["epoch"], asked["attempt"]):
            lane.seat = None
        return True

    def _park(self, asked: Request, offset: int) -> bool:
        entry, lane = self._claimed(asked)
        if not lane:
            return False
        for letter in letters.read_all(asked["letters"]):
            self._keep(entry, letter)
        return True

    def _give_back(self, asked: Request, offset: int) -> bool:
        entry, lane = self._claimed(asked)
        if not lane:
            return False
        for letter in letters.read_all(asked["letters"]):
            entry.letters.give_back(letter)
        return True

    def _follow(self, asked: Request, offset: int) -> Sequence[bool] | bool:
        entry, lane = self._claimed(asked)
        if not lane:
            return False
        return [self._is_behind(entry, letter) for letter in letters.read_all(asked["letters"])]

    def _hold(self, asked: Request, offset: int) -> bool:
        entry, letter = self._numbered(asked["number"])
        if not entry or not letter or (letter.is_overtaken and not asked["force"]):
            return False
        entry.letters.alter(asked["number"], holds=True)
        return True

    def _remove(self, asked: Request, offset: int) -> bool:
        entry, letter = self._numbered(asked["number"])
        if not entry or not letter:
            return False
        entry.letters.remove(asked["number"])
        if asked["redriven"]:
            entry.redriven += 1
        else:
            entry.dropped += 1
        return True

    # What they share.

    def claims(self, pipeline: str, lane: str, epoch: int, attempt: int) -> bool:
        """Whether this claim is the current one."""
        entry = self.of(pipeline)
        found = entry.lanes.get(lane)
        return found is not None and entry.is_led(epoch) and (found.epoch, found.attempt) == (epoch, attempt)

    def _claimed(self, asked: Request) -> tuple[PipelineEntry, LaneEntry | None]:
        entry = self.of(asked["pipeline"])
        is_current = self.claims(asked["pipeline"], asked["lane"], asked["epoch"], asked["attempt"])
        return entry, entry.lanes[asked["lane"]] if is_current else None

    def _keep(self, entry: PipelineEntry, letter: DeadLetter) -> None:
        if letter not in entry.letters:
            self._letters += 1
            entry.letters.add(replace(letter, number=self._letters))

    def _is_behind(self, entry: PipelineEntry, letter: DeadLetter) -> bool:
        if letter in entry.letters:
            return True
        earlier = entry.letters.earlier(letter)
        if any(one.holds for one in earlier):
            self._keep(entry, letter)
            return True
        entry.letters.overtake(earlier, letter)
        return False

    def _numbered(self, number: int) -> tuple[PipelineEntry | None, DeadLetter | None]:
        for entry in self.pipelines.values():
            if letter := entry.letters.get(number):
                return entry, letter
        return None, None


_DEEDS: Mapping[str, Callable[[Book, Request, int], Any]] = {
    "take": Book._take,
    "resign": Book._resign,
    "place": Book._place,
    "forget": Book._forget,
    "halt": Book._halt,
    "note": Book._note,
    "register": Book._register,
    "advance": Book._advance,
    "release": Book._release,
    "park": Book._park,
    "give_back": Book._give_back,
    "follow": Book._follow,
    "hold": Book._hold,
    "remove": Book._remove,
}
