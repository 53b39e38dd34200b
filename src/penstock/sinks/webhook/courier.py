"""Carries batches over one line, one after the other, until each change is taken, condemned, or all is at an end."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from threading import Thread
from typing import NamedTuple

from penstock.errors import DeliveryExhausted
from penstock.event import DeliveryRetried
from penstock.failpoint import reach
from penstock.holding import Place
from penstock.letter import waiting_rows
from penstock.poison import IN_A_ROW, Condemned
from penstock.retry import Retry
from penstock.sink import Assignment
from penstock.sinks.webhook.dispatch import Dispatch
from penstock.sinks.webhook.inquest import Fault, Inquest, Part, parted, passing
from penstock.sinks.webhook.line import Answer, Line, void
from penstock.sinks.webhook.parcel import Packer, Parcel
from penstock.sinks.webhook.schedule import Waiting

FAR_SECONDS = 0.002
"""Where an answer takes longer, not even the rest of a batch of which all poison is named is worth waiting for."""

UNCERTAIN_SECONDS = 0.01
"""Between two looks at whether the claim has been confirmed."""


class Sentence(NamedTuple):
    """What an answer has condemned: to be carried out while the rest of the same batch is under way."""

    condemned: Sequence[Waiting]
    answer: Answer
    tries: int
    is_refused: bool


class Equipment(NamedTuple):
    """What every courier of a delivery has, but for the line. `in_order`: the receiver refuses what is behind a gap."""

    packer: Packer
    dispatch: Dispatch
    retry: Retry
    assignment: Assignment
    in_order: bool = False


class Courier(Thread):
    """A thread with a line of its own. `take_over`: whether somebody else goes on with an inquest."""

    def __init__(self, line: Line, equipment: Equipment, take_over: Callable[[Inquest, Answer], bool] | None = None) -> None:
        super().__init__(name="webhook", daemon=True)
        self._packer, self._dispatch, self._retry, assignment, self._in_order = equipment
        self.line, self._assignment, self._take_over = line, assignment, take_over
        self._poison, self._halts = assignment.poison, assignment.poison.then == "halt"
        self._sentence: Sentence | None = None

    def run(self) -> None:
        """Send batches until the end."""
        try:
            self._work()
        except BaseException as failure:  # noqa: BLE001 - a thread's last words: every later call of its owner raises them
            self._dispatch.fail(failure)

    def _work(self) -> None:
        while (batch := self._dispatch.cut()) and self._carry(Inquest(batch, self._retry.is_spent, in_order=self._in_order)):
            continue

    def _carry(self, inquest: Inquest, answer: Answer | None = None) -> bool:
        """Try until everything is settled, or somebody else goes on with it; False when the end came first."""
        while not inquest.is_over:
            reach("sink.sending")
            if not self._may_send():
                break
            taken = self._dispatch.requests_taken
            if more := self._more() if inquest.wants_more(taken) else []:
                inquest.add(self._dispatch.with_rows(more))
            elif part := inquest.next(taken):
                answer = self._try(inquest, part) or answer
                if answer and self._gives_away(inquest, answer):
                    return True
            elif answer:
                self._rest(answer, max(part.failures for part in inquest.parts))
                inquest.again()
        self._carry_out()
        return inquest.is_over

    def _may_send(self) -> bool:
        """Wait while it is not known that the lane is still ours: who was stopped may have a successor. False at the end."""
        while not self._dispatch.is_ending and not self._assignment.is_current():
            self._dispatch.rest(UNCERTAIN_SECONDS)
        return not self._dispatch.is_ending

    def _more(self) -> list[Waiting]:
        """What else could be sent, for the far side to take something."""
        return self._dispatch.more()

    def _gives_away(self, inquest: Inquest, answer: Answer) -> bool:
        """Whether somebody else goes on with it; not if the far side may be in trouble, since everything waits then."""
        is_far = bool(answer.named) and self.line.seconds > FAR_SECONDS
        if self._take_over is None or len(inquest.parts) < (1 if is_far else 2) or inquest.is_in_doubt:
            return False
        if self._fault(answer) is not Fault.CERTAIN:
            return False
        self._carry_out()
        for part in inquest.parts:
            part.changes = self._dispatch.with_rows(part.changes)
        return self._take_over(inquest, answer)

    def _try(self, inquest: Inquest, part: Part) -> Answer | None:
        """Send what does not have to wait for a dead letter; the answer if it failed."""
        if not self._sift(inquest, part):
            return None
        parcel = self._packer.pack(part.changes)
        part.attempts += 1
        part.sent_at = self._dispatch.requests_taken
        self.line.send(parcel.body, parcel.numbered(part.attempts))
        self._carry_out()
        is_believed, answer = self._is_believed(), self._read(part, self.line.answer())
        if answer.status is not None:
            reach("sink.sent")
        part.is_refused = part.is_refused and (answer.is_taken or answer.is_certain)
        if answer.is_taken:
            self._taken(inquest, part, answer)
        elif answer.is_too_large and len(part.changes) > 1 and not answer.named:
            self._split(inquest, part, answer)
        elif not answer.is_stale:
            self._failed(inquest, part, parcel, answer if is_believed else replace(answer, is_doubtful=True))
            return answer
        return None

    def _split(self, inquest: Inquest, part: Part, answer: Answer) -> None:
        """Send halves at once: the request had more bytes than the far side takes."""
        self._dispatch.shrink(sum(change.bytes for change in part.changes))
        part.changes = self._dispatch.with_rows(part.changes)
        inquest.split(part)
        self._tell(f"{answer.reason}; the batch goes in halves", part.failures, 0.0)

    def _read(self, part: Part, answer: Answer) -> Answer:
        """An answer as it is meant: a 2xx that names all has taken nothing; that names what was not sent, nobody knows what."""
        if not answer.is_taken or not answer.named:
            return answer
        refused, others = parted(part.changes, answer.named)
        if len(refused) < len(answer.named):
            return void(answer, "names what was not sent")
        return answer if others or self._halts else replace(answer, is_void=True)

    def _taken(self, inquest: Inquest, part: Part, answer: Answer) -> None:
        """The far side has it; all but what its answer names."""
        if answer.named:
            self._refuse(part, answer)
        inquest.taken(part)
        if part.changes:
            self._dispatch.settle(part.changes, is_taken=True)

    def _refuse(self, part: Part, answer: Answer) -> None:
        """Condemn what an answer names that has taken the rest."""
        refused, others = parted(part.changes, answer.named)
        if refused:
            overtaken, passed = self._passing(part.changes, refused)
            self._condemn(refused, answer, part.failures + 1, overtaken, is_refused=part.is_refused)
            self._poison.pass_by(passed)
            part.changes = others

    def _passing(self, changes: Sequence[Waiting], refused: Sequence[Waiting]) -> tuple[Collection[Place], Collection[Place]]:
        """Which refused ones were overtaken, if the far side has all others of these; and by which of them."""
        if self._are_apart(changes):
            return (), ()
        named = self._dispatch.with_rows(changes)
        wholes = self._dispatch.changes([one for one in named if one.is_whole])
        schemas = {change.place for change in wholes if not waiting_rows(change)}  # they pass nothing, and nothing passes them
        return passing([one for one in named if one.at not in schemas], {one.at for one in refused})

    def _are_apart(self, changes: Sequence[Waiting]) -> bool:
        """Whether it is known that none of these shares a row with another one, as is nearly always so."""
        keys = self._dispatch.keys(changes)
        return keys is not None and len(set(keys)) == len(keys)

    def _sift(self, inquest: Inquest, part: Part) -> bool:
        """Leave out what waits behind a dead letter, which settles it; whether anything is left."""
        if not self._poison.has_letters or self._dispatch.are_clear(part.changes, self._poison.news):
            return True
        near = self._poison.near([one.at for one in part.changes], self._dispatch.keys(part.changes))
        if not near:
            return True
        some = self._dispatch.with_rows([part.changes[index] for index in near])
        found = self._poison.concerned([one.at for one in some], [one.rows for one in some])
        if not (concerned := [some[index] for index in found]):
            return True
        sent = {change.place for change in self._poison.sift(self._dispatch.changes(concerned))}
        if parked := [one for one in concerned if one.at not in sent]:
            gone = {one.number for one in parked}
            part.changes = [one for one in part.changes if one.number not in gone]
            if not part.changes:
                inquest.emptied(part)
            self._dispatch.settle(parked)
        return bool(part.changes)

    def _failed(self, inquest: Inquest, part: Part, parcel: Parcel, answer: Answer) -> None:
        failures = part.failures + 1
        if self._halts and self._retry.is_spent(failures):
            raise self._exhausted(answer, parcel.span, failures)
        fault, changes = self._fault(answer), part.changes
        condemned = inquest.named(part, answer.named) if fault is Fault.CERTAIN else []
        if condemned and inquest.parts == [part] and self._are_apart(changes):
            self._sentence = Sentence(condemned, answer, failures, part.is_refused)
            return
        if not condemned:
            part.changes = part.changes if self._halts else self._dispatch.with_rows(part.changes)
            found = inquest.failed(part, fault)
            condemned = [found] if found else []
        if condemned:
            self._condemn(condemned, answer, failures, is_refused=part.is_refused)

    def _carry_out(self) -> None:
        if sentence := self._sentence:
            self._sentence = None
            self._condemn(sentence.condemned, sentence.answer, sentence.tries, is_refused=sentence.is_refused)

    def _fault(self, answer: Answer) -> Fault:
        if self._halts or not answer.is_refusal:
            return Fault.NONE
        if not answer.is_final:
            return Fault.POSSIBLE
        return Fault.CERTAIN if not answer.is_doubtful and self._is_believed() else Fault.LIKELY

    def _is_believed(self) -> bool:
        """Whether a final answer to what is sent now counts: not after too many in a row."""
        return self._dispatch.condemned_in_row < IN_A_ROW

    def _condemn(
        self, some: Sequence[Waiting], answer: Answer, tries: int, overtaken: Collection[Place] = (), *, is_refused: bool
    ) -> None:
        errors = [self._exhausted(answer, f"{one.place}..{one.place}", tries) for one in some]
        found = zip(self._dispatch.changes(some), errors, (one.at in overtaken for one in some), strict=True)
        self._poison.condemn_all([Condemned(*one, is_refused) for one in found], tries)
        self._dispatch.settle(some, condemned=len(some))

    def _exhausted(self, answer: Answer, span: str, failures: int) -> DeliveryExhausted:
        return DeliveryExhausted(f"{self.line.shown}: {answer.reason}; changes {span} were not taken in {failures} tries")

    def _rest(self, answer: Answer, failures: int) -> None:
        """Wait before the next try."""
        wait = self._retry.wait(failures, random.random(), answer.retry_after)
        self._tell(answer.reason, failures, wait)
        self._dispatch.rest(wait)

    def _tell(self, reason: str, tries: int, wait: float) -> None:
        pipeline, reason = self._assignment.pipeline, f"{self.line.shown}: {reason}"
        self._assignment.tell(DeliveryRetried(pipeline=pipeline, reason=reason, tries=tries, wait_seconds=round(wait, 3)))
