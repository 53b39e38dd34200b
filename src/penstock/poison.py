"""Poison: a change that cannot be delivered whatever is tried, and what becomes of it. `docs/dead-letters.md` is for users.

A sink condemns a change when its tries are spent, and asks before each sending which changes have to wait. Both are settled then:
the watermark may pass them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Lock
from typing import Literal, NamedTuple, Protocol, TypeVar

from penstock.change import Change, Lane, Op
from penstock.errors import PenstockError
from penstock.event import ChangeDropped, ChangeParked, ChangesPassed, ChangesWaited, Event
from penstock.rows import Row, rows_of_change

Place = tuple[int, int]
"""Position and ordinal."""

Then = Literal["halt", "drop", "dead-letter"]
"""What becomes of poison."""

Stage = Literal["sql", "function", "sink"]
"""What a parked change could not pass: `where` and `select`, the function, or the far side. Earlier stages have let it pass."""

IN_A_ROW = 10
"""So many changes in a row are poison; if then the next one fails too, it is not the changes' fault."""

_SHOWN = 200


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A parked change, as it was before the stage that it could not pass, and why.

    `is_behind`: nothing is wrong with it, it waits for an earlier letter of its key. `holds`: later changes of its key wait for it.
    `is_overtaken`: a later one went on. The store gives the `number`.
    """

    incarnation: str
    lane: Lane
    change: Change
    stage: Stage
    code: str = ""
    message: str = ""
    tries: int = 0
    epoch: int = 0
    is_behind: bool = False
    holds: bool = True
    is_overtaken: bool = False
    parked_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    number: int | None = None

    @property
    def rows(self) -> Sequence[Row]:
        """The rows it is about; none for what tells of a schema: that has no key, so nothing waits for it, nor it for anything."""
        return waiting_rows(self.change)

    @property
    def hold(self) -> Hold:
        """What others need to know of it."""
        return Hold(self.incarnation, self.lane, self.change.place, tuple(self.rows), self.holds, self.is_overtaken)


class Hold(NamedTuple):
    """A letter as those see it that may have to wait for it."""

    incarnation: str
    lane: Lane
    place: Place
    rows: Sequence[Row]
    holds: bool = True
    is_overtaken: bool = False

    def is_before(self, other: Hold) -> bool:
        """Whether it comes first. Letters of another lane, or another life of the source, were there first; and of one position any
        other, since a row of a range that is read anew may have got another ordinal.
        """
        if (self.incarnation, self.lane) != (other.incarnation, other.lane):
            return True
        return self.place[0] <= other.place[0] and self.place != other.place


class Condemned(NamedTuple):
    """A change that is poison, why, and whether a later one of its rows has arrived nevertheless."""

    change: Change
    error: PenstockError
    is_overtaken: bool = False


class Placed(Protocol):
    """A change as far as its letters go."""

    @property
    def at(self) -> Place:
        """Where it stands."""

    @property
    def rows(self) -> Sequence[Row]:
        """The rows it is about."""


_Placed = TypeVar("_Placed", bound=Placed)


def waiting_rows(change: Change) -> Sequence[Row]:
    """The rows whose letters a change has to wait for."""
    return () if change.op == Op.SCHEMA else rows_of_change(change)


class Parking(Protocol):
    """Where the letters of a pipeline are kept, as the holder of one lane sees it.

    - A letter is known by incarnation, lane, position and ordinal: parked again, it stays as it was.
    - Letters outlive the process when a call returns, and no watermark that is recorded later outlives them; once `secure` has
      returned, nothing does that the sink makes durable elsewhere.
    - All but `secure` raise TermLost, and change nothing, once the claim is no longer the current one. Any thread may call.
    """

    def holds(self, rows: Collection[Row] | None = None) -> Sequence[Hold]:
        """The letters of the pipeline, on every lane; or those that share one of these rows."""

    def park(self, letters: Sequence[DeadLetter]) -> None:
        """Keep these."""

    def follow(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        """Whether each of these is parked: it was there already, or now is, behind an earlier letter that holds a row of it.

        In the same step, the earlier letters of rows of the others are marked as overtaken.
        """

    def secure(self) -> None:
        """Make what is parked outlive a loss of power, too."""


class Holding:
    """Which rows have letters, as far as is known without asking the store. It may know letters that are gone, never too few."""

    def __init__(self, holds: Iterable[Hold] = ()) -> None:
        self._letters: set[tuple[str, Lane, Place]] = set()
        self._places: set[Place] = set()
        self._first: dict[Row, Hold] = {}
        self._tables: dict[str, Hold] = {}  # the first of any row, for changes about a whole table
        self._passed: set[Row] = set()
        self._known: set[Row] = set()
        self._wholes: set[str] = set()  # tables with one about all of their rows
        for hold in holds:
            self.add(hold)

    def __bool__(self) -> bool:
        return bool(self._letters)

    def add(self, hold: Hold) -> None:
        """Know this letter."""
        self._letters.add((hold.incarnation, hold.lane, hold.place))
        self._places.add(hold.place)
        self._known.update(hold.rows)
        self._wholes.update(table for table, key in hold.rows if key is None)
        if hold.is_overtaken and not hold.holds:
            self._passed.update(hold.rows)
            return
        for row in hold.rows:
            if row not in self._first or hold.is_before(self._first[row]):
                self._first[row] = hold
            if row[0] not in self._tables or hold.is_before(self._tables[row[0]]):
                self._tables[row[0]] = hold

    def forget(self, rows: Iterable[Row]) -> None:
        """Know nothing of these rows any more."""
        for row in rows:
            self._first.pop(row, None)
            self._first.pop((row[0], None), None)
            self._passed.discard(row)
            self._known.discard(row)

    def among(self, some: Sequence[_Placed]) -> list[_Placed]:
        """Those of these that are worth a closer look: quick, and hardly any."""
        places, known = self._places, self._known
        if self._wholes:
            known = known | {row for one in some for row in one.rows if row[0] in self._wholes}
        return [one for one in some if one.at in places or not known.isdisjoint(one.rows) or (one.rows and one.rows[0][1] is None)]

    def concerns(self, one: Hold) -> bool:
        """Whether this change may be a letter, or come behind one."""
        if (one.incarnation, one.lane, one.place) in self._letters:
            return True
        for row in one.rows:
            wholes = self._tables.get(row[0]) if row[1] is None else self._first.get((row[0], None))
            if any(first and first.is_before(one) for first in (self._first.get(row), wholes)):
                return True
        return False

    def is_passed(self, rows: Iterable[Row]) -> bool:
        """Whether later changes of these rows go on past a letter."""
        return not self._passed.isdisjoint(rows)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Where a change was condemned."""

    pipeline: str
    lane: Lane
    incarnation: str
    epoch: int
    tell: Callable[[Event], None]


class Poison:
    """Decides about poison on one lane; any thread may call.

    `keys`: whether later changes of a parked key `wait` behind it or `go-on`. `kept_back` counts what a sink was handed in vain.
    """

    def __init__(
        self,
        then: Then = "halt",
        keys: Literal["wait", "go-on"] = "wait",
        parking: Parking | None = None,
        about: Circumstances | None = None,
    ) -> None:
        self.then: Then = then if parking and about else "halt"
        self.kept_back = self.dropped = self.passed = 0
        self._keys, self._parking, self._about = keys, parking, about
        self._lock, self._is_loose = Lock(), False
        self._holding = Holding(parking.holds() if parking else ())

    @property
    def is_idle(self) -> bool:
        """Whether it can neither take out nor spare a change: then nobody needs to ask."""
        return self.then == "halt" and not self._holding

    def condemn(self, change: Change, error: PenstockError, tries: int = 1, stage: Stage = "sink") -> None:
        """The change is poison: raise the error, or drop the change, or park it durably, as the pipeline file says."""
        self.condemn_all([Condemned(change, error)], tries, stage)

    def condemn_all(self, found: Sequence[Condemned], tries: int = 1, stage: Stage = "sink") -> None:
        """All of these are poison: parked in one step."""
        if self.then == "halt" or not self._parking or not self._about:
            raise found[0].error
        with self._lock:
            if self.then == "dead-letter":
                letters = [
                    replace(self._letter(one.change, stage, one.error, tries), is_overtaken=one.is_overtaken) for one in found
                ]
                self._parking.park(letters)
                self._is_loose = True
                for letter in letters:
                    self._holding.add(letter.hold)
            else:
                self.dropped += len(found)
            self.kept_back += len(found) if stage == "sink" else 0
        kind = ChangeParked if self.then == "dead-letter" else ChangeDropped
        for one in found:
            self._about.tell(_told(kind, self._about.pipeline, one.change, one.error))

    def secure(self) -> None:
        """Before anything is made durable that stands for what was parked: see that it outlives that."""
        with self._lock:
            if self._is_loose and self._parking:
                self._parking.secure()
            self._is_loose = False

    def pass_by(self, changes: int) -> None:
        """So many have arrived past what was condemned."""
        with self._lock:
            self._count(0, changes)

    @property
    def has_letters(self) -> bool:
        """Whether `sift` might take out anything at all."""
        return bool(self._holding)

    def concerned(self, some: Sequence[_Placed]) -> list[_Placed]:
        """Those that `sift` might take out, or count; without waiting for whoever asks the store."""
        return self._holding.among(some) if self._holding else []

    def sift(self, changes: Sequence[Change]) -> Sequence[Change]:
        """Those to send now, asked right before sending them. The others are parked: they are letters, or wait behind one."""
        if not self._holding or not self._about:
            return changes
        with self._lock:
            holds = self._holds(changes)
            parked = self._followed(changes, holds)
            sent = [index for index in range(len(changes)) if index not in parked]
            self._count(len(parked), sum(self._holding.is_passed(holds[index].rows) for index in sent))
        return [changes[index] for index in sent]

    def keep_back(self, changes: Sequence[Change]) -> set[Place]:
        """Which of these are parked already now: `sift` is asked about the others again. Many at once cost less than a few."""
        if not self._holding or self._keys != "wait":
            return set()
        with self._lock:
            parked = self._followed(changes, self._holds(changes))
            self._count(len(parked), 0)
        return {changes[index].place for index in parked}

    def _followed(self, changes: Sequence[Change], holds: Sequence[Hold]) -> set[int]:
        """Which of these are parked: they are letters, or wait behind one."""
        assert self._parking
        asked = []
        for index, hold in enumerate(holds):
            if self._holding.concerns(hold):
                asked.append(index)
                self._holding.add(hold)  # what shares another row with it has to ask too
        letters = [self._letter(changes[index], "sink") for index in asked]
        answers = self._parking.follow(letters) if asked else ()
        parked = {index for index, is_parked in zip(asked, answers, strict=True) if is_parked}
        self._is_loose = self._is_loose or bool(parked)
        if len(parked) < len(asked):
            self._look_again({row for index in asked if index not in parked for row in holds[index].rows})
        return parked

    def _look_again(self, rows: Collection[Row]) -> None:
        assert self._parking
        self._holding.forget(rows)
        for hold in self._parking.holds(rows):
            self._holding.add(hold)

    def _count(self, waited: int, passed: int) -> None:
        assert self._about
        self.kept_back += waited
        self.passed += passed
        if waited:
            self._about.tell(ChangesWaited(pipeline=self._about.pipeline, changes=waited))
        if passed:
            self._about.tell(ChangesPassed(pipeline=self._about.pipeline, changes=passed))

    def _letter(self, change: Change, stage: Stage, error: PenstockError | None = None, tries: int = 0) -> DeadLetter:
        """A letter for what this error is about; without one, it waits behind another."""
        assert self._about
        return DeadLetter(
            incarnation=self._about.incarnation,
            lane=self._about.lane,
            change=change,
            stage=stage,
            code=error.code if error else "",
            message=error.message if error else "",
            tries=tries,
            epoch=self._about.epoch,
            is_behind=error is None,
            holds=error is None or self._keys == "wait",
        )

    def _holds(self, changes: Sequence[Change]) -> list[Hold]:
        assert self._about
        about = self._about.incarnation, self._about.lane
        return [Hold(*about, change.place, waiting_rows(change)) for change in changes]


HALTING = Poison()
"""Raises every error: for whoever has no store of letters."""


def then_of(sink: object) -> Then:
    """What becomes of poison, as the settings of this sink say; halt, if they say nothing."""
    retry = getattr(sink, "retry", None)
    then: Then = retry.then if retry else "halt"
    return then


def of_sink(sink: object, parking: Parking, about: Circumstances) -> Poison:
    """The policy that the settings of this sink ask for."""
    retry = getattr(sink, "retry", None)
    return Poison(then_of(sink), retry.keys if retry else "wait", parking, about)


def _told(kind: type[ChangeParked | ChangeDropped], pipeline: str, change: Change, error: PenstockError) -> Event:
    return kind(
        pipeline=pipeline,
        position=change.position,
        table=change.table,
        key=change.key[:_SHOWN],
        code=error.code,
        message=error.message[: 2 * _SHOWN],
    )
