"""The policy for poison: changes that cannot be delivered, even with retries. `docs/dead-letters.md` is for users.

A sink condemns a change after its last try, and asks before each sending which changes must wait. Once both are parked, the
watermark may pass them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from threading import Lock
from typing import Literal

from penstock.change import Change, Place
from penstock.dead_letters import Parking
from penstock.errors import PenstockError
from penstock.event import ChangeDropped, ChangesPassed, ChangesWaited
from penstock.letter import DeadLetter, Stage, waiting_rows
from penstock.poison.condemned import GATHERED, Circumstances, Condemned, Then, event_of, parked
from penstock.poison.parked_keys import Hold, ParkedKeys
from penstock.retry import Retry
from penstock.rows import Row


class Poison:
    """Decides about poison on one lane; any thread may call, also `near`, `among` and `news` of its `parked_keys`.

    `keys`: whether later changes of a parked key `wait` or `go-on`. `gathers`: number of letters that are parked in one step, or
    fewer before a query for letters and before progress is recorded. `park` reports the changes that waited or passed as sums.
    """

    def __init__(
        self,
        then: Then = "halt",
        keys: Literal["wait", "go-on"] = "wait",
        parking: Parking | None = None,
        about: Circumstances | None = None,
        gathers: int = 1,
    ) -> None:
        self.then: Then = then if parking and about else "halt"
        self.dropped = self.passed = 0
        self._dropping = list[Place]()
        self._kept_back: list[Place] = []
        self._passing, self._marking, self._returned = set[Place](), set[Place](), set[Place]()
        self._reached: Place = (-1, -1)
        self._keys, self._parking, self._about = keys, parking, about
        self._lock, self._untold = Lock(), (0, 0)
        self._gathers, self._unparked, self._owed = gathers, list[DeadLetter](), list[DeadLetter]()
        self.parked_keys = ParkedKeys(parking.holds() if parking else ())
        self._is_loose = bool(self.parked_keys)  # a predecessor may have died before it secured them

    def condemn(self, change: Change, error: PenstockError, tries: int = 1, stage: Stage = "sink") -> None:
        """Raise the error of a poison change, drop the change, or park it, according to the pipeline file."""
        self.condemn_all([Condemned(change, error)], tries, stage)

    def condemn_all(self, found: Sequence[Condemned], tries: int = 1, stage: Stage = "sink") -> None:
        """The same for several changes, in one step."""
        if self.then == "halt" or not self._parking or not self._about:
            raise found[0].error
        places = {one.change.place for one in found}
        with self._lock:
            self._kept_back += places if stage == "sink" else ()
            self._returned |= self._marking & {one.change.place for one in found if one.is_refused and not one.is_overtaken}
            self._passing -= places
            if self.then == "dead-letter":
                self._gather(found, tries, stage)
                return
            self._dropping += places
        pipeline = self._about.pipeline
        self._about.emit([event_of(ChangeDropped, pipeline, one.change, one.error.code, one.error.message) for one in found])

    def park(self) -> None:
        """Park condemned changes, before progress is recorded. Raises the errors of the store; the next call tries again."""
        with self._lock:
            self._park()
            self._emit_sums()

    def secure(self) -> None:
        """Park condemned changes and make the letters durable, before progress past them becomes durable elsewhere."""
        with self._lock:
            self._park()
            if self._is_loose and self._parking:
                self._parking.secure()
            self._is_loose = False

    def pass_by(self, places: Collection[Place]) -> None:
        """Note changes that have arrived past condemned changes."""
        with self._lock:
            self._passing.update(places)

    def hand_back(self, places: Collection[Place]) -> None:
        """Note changes that a sink was given but does not deliver, although they are not poison."""
        with self._lock:
            self._kept_back += places

    def reach(self, up_to: Place) -> list[Place]:
        """Note that all changes up to this place are durable; returns the places among them that the sink did not deliver."""
        with self._lock:
            kept = [place for place in self._kept_back if place <= up_to]
            self._kept_back = [place for place in self._kept_back if place > up_to] if kept else self._kept_back
            self._marking = {place for place in self._marking if place > up_to}
            self._reached = max(self._reached, up_to)
            return kept

    def settle(self, position: int) -> None:
        """Count the changes that passed a letter and those that were dropped, up to a position that will be recorded next."""
        with self._lock:
            passed = {place for place in self._passing if place <= self._reached and place[0] <= position}
            dropped = [place for place in self._dropping if place[0] <= position]
            self._passing -= passed
            self._dropping = [place for place in self._dropping if place[0] > position]
            self.passed, self.dropped = self.passed + len(passed), self.dropped + len(dropped)
            self._untold = self._untold[0], self._untold[1] + len(passed)

    @property
    def has_letters(self) -> bool:
        """Whether `sift` may take out a change."""
        return bool(self.parked_keys)

    def sift(self, changes: Sequence[Change]) -> Sequence[Change]:
        """The changes to send now, for a call right before that. The others are parked: they are letters, or wait for one."""
        if not self.parked_keys or not self._about:
            return changes
        with self._lock:
            holds = self._holds(changes)
            parked = self._followed(changes, holds)
            sent = [index for index in range(len(changes)) if index not in parked]
            self._keep([changes[index].place for index in parked])
            self._passing.update(holds[index].place for index in sent if self.parked_keys.is_passed(holds[index].rows))
        return [changes[index] for index in sent]

    def keep_back(self, changes: Sequence[Change], stage: Stage = "sink") -> set[Place]:
        """The places of those that are parked early: one step for many costs less. `sift` decides about the others again."""
        if not self.parked_keys or self._keys != "wait":
            return set()
        with self._lock:
            parked = {changes[index].place for index in self._followed(changes, self._holds(changes), stage)}
            self._keep(parked, stage)
        return parked

    def _gather(self, found: Sequence[Condemned], tries: int, stage: Stage) -> None:
        for one in found:
            letter = self._letter(one.change, stage, one.error, tries, one.is_overtaken)
            self._unparked.append(letter)
            self.parked_keys.add(letter.hold)
        if len(self._unparked) >= self._gathers:
            self._park()

    def _park(self) -> None:
        if self._unparked and self._parking and self._about:
            self._parking.park(self._unparked)
            letters, self._unparked, self._is_loose = self._unparked, [], True
            self._owed += [letter for letter in letters if letter.change.place in self._returned]
            self._returned.clear()
            self._about.emit(parked(self._about.pipeline, letters))
        self._give_back()

    def _give_back(self) -> None:
        """Give back the owed letters, which stay owed until the store has accepted them."""
        if self._owed and self._parking:
            self._parking.give_back(self._owed)
            self._look_again({row for letter in self._owed for row in letter.rows})
            self._owed = []

    def _followed(self, changes: Sequence[Change], holds: Sequence[Hold], stage: Stage = "sink") -> set[int]:
        """The indexes of those that are parked: they are letters, or wait for one."""
        assert self._parking
        asked = []
        for index, hold in enumerate(holds):
            if self.parked_keys.concerns(hold):
                asked.append(index)
                self.parked_keys.add(hold)  # includes later changes that share another row with it
        letters = [self._letter(changes[index], stage) for index in asked]
        if asked:
            self._park()
        answers = self._parking.follow(letters) if asked else ()
        parked = {index for index, is_parked in zip(asked, answers, strict=True) if is_parked}
        self._marking.update(holds[index].place for index in asked if index not in parked)
        self._is_loose = self._is_loose or bool(parked)
        if len(parked) < len(asked):
            self._look_again({row for index in asked if index not in parked for row in holds[index].rows})
        return parked

    def _look_again(self, rows: Collection[Row]) -> None:
        assert self._parking
        found = list(self._parking.holds(rows))  # first: if the store is away, the rows stay
        self.parked_keys.forget(rows)
        for hold in found:
            self.parked_keys.add(hold)

    def _keep(self, waited: Collection[Place], stage: Stage = "sink") -> None:
        self._kept_back += waited if stage == "sink" else ()
        self._passing.difference_update(waited)
        self._untold = self._untold[0] + len(waited), self._untold[1]

    def _emit_sums(self) -> None:
        (waited, passed), self._untold = self._untold, (0, 0)
        if self._about and waited:
            self._about.emit([ChangesWaited(pipeline=self._about.pipeline, changes=waited)])
        if self._about and passed:
            self._about.emit([ChangesPassed(pipeline=self._about.pipeline, changes=passed)])

    def _letter(
        self, change: Change, stage: Stage, error: PenstockError | None = None, tries: int = 0, is_overtaken: bool = False
    ) -> DeadLetter:
        """The letter of a change; without an error, it waits for another letter."""
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
            is_overtaken=is_overtaken,
        )

    def _holds(self, changes: Sequence[Change]) -> list[Hold]:
        assert self._about
        about = self._about.incarnation, self._about.lane
        return [Hold(*about, change.place, waiting_rows(change)) for change in changes]


HALTING = Poison()
"""Raises every error, where there is no store of letters."""


def then_of(retry: Retry | None) -> Then:
    """The effect of poison under these settings of a sink; without settings, halt."""
    return retry.then if retry else "halt"


def policy(retry: Retry | None, parking: Parking, about: Circumstances) -> Poison:
    """The policy of these settings of a sink."""
    return Poison(then_of(retry), retry.keys if retry else "wait", parking, about, GATHERED)
