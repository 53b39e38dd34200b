"""The consequences of the outcome of a request: changes are settled, condemned, or sent again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from penstock.change import Place
from penstock.delivery.bisection import Bisection, Fault, Part, parted, passing
from penstock.delivery.queue import Queue
from penstock.delivery.schedule import Waiting
from penstock.delivery.transport import Accepted, Failed, Outcome, Refused
from penstock.errors import DeliveryExhausted
from penstock.letter import waiting_rows
from penstock.poison.condemned import IN_A_ROW, Condemned
from penstock.poison.policy import Poison
from penstock.retry import Retry


class Failure(NamedTuple):
    """A request that failed. `is_doubtful`: the destination seemed to be in trouble when it was sent."""

    outcome: Failed
    is_doubtful: bool = False

    @property
    def is_named(self) -> bool:
        """Whether the destination named the changes at fault."""
        return isinstance(self.outcome, Refused) and bool(self.outcome.named)


def meant(outcome: Outcome, sent: Sequence[Waiting], *, halts: bool) -> Outcome:
    """An outcome as the driver acts on it: an acceptance that names all changes is a refusal, unless poison halts the pipeline.

    An acceptance that names changes which were not sent accepts nothing for certain.
    """
    if not isinstance(outcome, Accepted) or not outcome.named:
        return outcome
    places = {one.at for one in sent}
    if not outcome.named <= places:
        return Refused(f"{outcome.reason}, but it names what was not sent", after=outcome.after)
    is_final = outcome.named == places and not halts
    return Refused(outcome.reason, outcome.named, is_final=True, after=outcome.after) if is_final else outcome


def fault(failure: Failure, *, halts: bool, is_believed: bool) -> Fault:
    """Whether the changes caused this failure; a final refusal counts as certain only if it is believed."""
    match failure.outcome:
        case Refused(is_final=True) if not halts:
            return Fault.CERTAIN if is_believed and not failure.is_doubtful else Fault.LIKELY
        case Refused() if not halts:
            return Fault.POSSIBLE
    return Fault.NONE


class Sentence(NamedTuple):
    """The result of a refusal, which is carried out while the rest of the batch is under way."""

    condemned: Sequence[Waiting]
    reason: str
    tries: int
    is_refused: bool


class Settlement:
    """Settles the changes of one sender. `was_believed`: whether final refusals were believed when the last request was sent."""

    def __init__(self, shown: str, queue: Queue, retry: Retry, poison: Poison) -> None:
        self._shown, self._queue, self._retry, self._poison = shown, queue, retry, poison
        self.halts, self.was_believed = poison.then == "halt", True
        self._sentence: Sentence | None = None

    def begin(self) -> None:
        """Note, before a request, whether a final refusal will be believed after all known poison is condemned."""
        self.was_believed = self._is_believed(len(self._sentence.condemned) if self._sentence else 0)

    def carry_out(self) -> None:
        """Condemn the poison that an earlier request has shown."""
        if sentence := self._sentence:
            self._sentence = None
            self._condemn(sentence.condemned, sentence.reason, sentence.tries, is_refused=sentence.is_refused)

    def sift(self, bisection: Bisection, part: Part) -> bool:
        """Remove and settle the changes that wait for a dead letter; whether any change is left."""
        parked_keys = self._poison.parked_keys
        if not parked_keys or self._queue.are_clear(part.changes, parked_keys.news):
            return True
        near = parked_keys.near([one.at for one in part.changes], self._queue.keys(part.changes))
        if not near:
            return True
        some = self._queue.with_rows([part.changes[index] for index in near])
        found = parked_keys.among([one.at for one in some], [one.rows for one in some])
        if not (concerned := [some[index] for index in found]):
            return True
        sent = {change.place for change in self._poison.sift(self._queue.changes(concerned))}
        if parked := [one for one in concerned if one.at not in sent]:
            gone = {one.number for one in parked}
            part.changes = [one for one in part.changes if one.number not in gone]
            if not part.changes:
                bisection.parts.remove(part)
            self._queue.settle(parked)
        return bool(part.changes)

    def accept(self, bisection: Bisection, part: Part, accepted: Accepted) -> None:
        """The destination has the changes, except those it named, which are condemned."""
        if accepted.named:
            refused, others = parted(part.changes, accepted.named)
            overtaken, passed = self._passing(part.changes, refused)
            self._condemn(refused, accepted.reason, part.failures + 1, overtaken, is_refused=part.is_refused)
            self._poison.pass_by(passed)
            part.changes = others
        bisection.taken(part)
        if part.changes:
            self._queue.settle(part.changes, is_taken=True)

    def _passing(self, changes: Sequence[Waiting], refused: Sequence[Waiting]) -> tuple[Collection[Place], Collection[Place]]:
        if self._are_apart(changes):
            return (), ()
        named = self._queue.with_rows(changes)
        wholes = self._queue.changes([one for one in named if one.is_whole])
        schemas = {change.place for change in wholes if not waiting_rows(change)}  # they neither overtake nor are overtaken
        return passing([one for one in named if one.at not in schemas], {one.at for one in refused})

    def _are_apart(self, changes: Sequence[Waiting]) -> bool:
        """Whether it is certain that no two of these share a row: the usual case."""
        keys = self._queue.keys(changes)
        return keys is not None and len(set(keys)) == len(keys)

    def fail(self, bisection: Bisection, part: Part, failure: Failure) -> None:
        """No change was accepted. Raises DeliveryExhausted once the tries are spent, if poison halts the pipeline."""
        failures, outcome, changes = part.failures + 1, failure.outcome, part.changes
        if self.halts and self._retry.is_spent(failures):
            raise self._exhausted(outcome.reason, f"{changes[0].place}..{changes[-1].place}", failures)
        found = self.fault(failure)
        condemned = bisection.named(part, outcome.named) if isinstance(outcome, Refused) and found is Fault.CERTAIN else []
        if condemned and bisection.parts == [part] and self._are_apart(changes):
            self._sentence = Sentence(condemned, outcome.reason, failures, part.is_refused)
            return
        if not condemned:
            part.changes = part.changes if self.halts else self._queue.with_rows(part.changes)
            poison = bisection.failed(part, found)
            condemned = [poison] if poison else []
        if condemned:
            self._condemn(condemned, outcome.reason, failures, is_refused=part.is_refused)

    def fault(self, failure: Failure) -> Fault:
        """Whether the changes caused this failure, as far as is known now."""
        return fault(failure, halts=self.halts, is_believed=self._is_believed())

    def _is_believed(self, more: int = 0) -> bool:
        """Whether a final refusal counts: not after too many in a row, including `more` further ones."""
        return self._queue.condemned_in_row + more < IN_A_ROW

    def _condemn(
        self, some: Sequence[Waiting], reason: str, tries: int, overtaken: Collection[Place] = (), *, is_refused: bool
    ) -> None:
        errors = [self._exhausted(reason, f"{one.place}..{one.place}", tries) for one in some]
        found = zip(self._queue.changes(some), errors, (one.at in overtaken for one in some), strict=True)
        self._poison.condemn_all([Condemned(*one, is_refused) for one in found], tries)
        self._queue.settle(some, condemned=len(some))

    def _exhausted(self, reason: str, span: str, failures: int) -> DeliveryExhausted:
        return DeliveryExhausted(f"{self._shown}: {reason}; changes {span} were not taken in {failures} tries")
