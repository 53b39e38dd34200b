"""The coordinator over Kafka: settings, and the steps that need no claim."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from penstock.change import Lane
from penstock.coordinator import PipelineState, Term
from penstock.coordinators.holder import ended
from penstock.coordinators.kafka import address, client
from penstock.coordinators.kafka.candidate import KafkaCandidate
from penstock.coordinators.kafka.claim import KafkaClaim, claimed, mark
from penstock.coordinators.kafka.log import StateLog, shared
from penstock.coordinators.kafka.membership import Membership
from penstock.coordinators.kafka.state_machine import StateMachine
from penstock.coordinators.letters import StoreLetters
from penstock.cursor import Watermark
from penstock.errors import StateUnavailable
from penstock.letter import DeadLetter

_DAY = 86400.0


@dataclass(frozen=True)
class KafkaCoordinator(StoreLetters):
    """Terms, watermarks and letters in a topic of Kafka; processes of any machine share it.

    `silence`: seconds without a renewal after which a holder counts as silent; by default the length of its session. `deadline`:
    overrides that of the address. `grace`: seconds that a claim waits for processes of older terms.
    """

    url: str = field(repr=False)
    silence: float | None = None
    deadline: float | None = None
    grace: float = 1.0
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        client.check(self.where)  # refuses a malformed address at once

    @property
    def where(self) -> address.Address:
        """The parts of the address."""
        place = address.parse(self.url)
        return replace(place, deadline=self.deadline) if self.deadline else place

    @property
    def address(self) -> str:
        """The brokers and the topic, without secrets."""
        return self.where.shown

    @property
    def ttl(self) -> float:
        """Seconds without a renewal after which a holder counts as silent."""
        return self.silence or self.where.session

    @property
    def renewal(self) -> float:
        """Seconds between two renewals: there are several within a deadline, because a holder that misses it stands down."""
        return min(self.ttl, self.where.deadline) / 5

    def examine(self) -> None:
        """Raise the error that prevents the use of this store; nothing is changed."""
        self._log.examine()

    def identity(self) -> str | None:
        """The random id in the first record of the topic; None before there is one."""
        log = self._log
        return log.look(lambda _: log.store)

    def candidate(self, pipeline: str, holder: str) -> KafkaCandidate:
        """Stand for a pipeline; makes the topics if there are none."""
        return KafkaCandidate(self.where, pipeline, holder, self.ttl, self.clock)

    def claim(self, term: Term, lane: Lane, attempt: int) -> AbstractContextManager[KafkaClaim]:
        """Hold a lane; blocks while a predecessor of this term still does."""
        return claimed(self._log, term, lane, attempt, grace=self.grace, ttl=self.ttl)

    def watermark(self, pipeline: str, lane: Lane) -> Watermark | None:
        """The watermark of a lane; None for a new pipeline."""
        return self._log.look(lambda machine: _watermarks(machine, pipeline).get(lane))

    def place(self, term: Term, marks: Mapping[Lane, Watermark], instead_of: Collection[Lane] = ()) -> None:
        """Set the watermarks of lanes in one step, also backwards, and drop lanes that these replace. Raises TermLost."""
        [(lane, first), *others], gone = marks.items(), list(instead_of)
        if others:
            self._under(term, "place_all", marks={lane: mark(one) for lane, one in marks.items()}, gone=gone)
        else:  # earlier versions, which read the same topic during an upgrade, refuse `place_all`
            self._under(term, "place", lane=lane, mark=mark(first), gone=gone)

    def forget(self, term: Term) -> None:
        """Remove all watermarks and letters of a pipeline. Raises TermLost."""
        self._under(term, "forget")

    def halt(self, term: Term, error: Mapping[str, str]) -> None:
        """Record the error with which this pipeline stopped. Raises TermLost."""
        self._under(term, "halt", error=dict(error))

    def note(self, term: Term, trouble: Mapping[str, str]) -> None:
        """Record an error that is tried again. Raises TermLost."""
        self._under(term, "note", trouble=dict(trouble))

    def pipeline_state(self, pipeline: str) -> PipelineState:
        """The state of a pipeline; the group decides whether its holder lives."""
        log = self._log
        known, seat = log.look(lambda machine: (_standing(machine, pipeline), machine.of(pipeline).seat))
        if log.store is None:
            return known
        members = log.members(self.where.group(pipeline))
        return replace(known, is_held=seat in members, standbys=sum(member != seat for member in members))

    def _parked(self, pipeline: str) -> Sequence[DeadLetter]:
        return self._log.look(lambda machine: machine.of(pipeline).letters.all())

    @contextmanager
    def _sole(self, pipeline: str) -> Iterator[bool]:
        """Own partition zero in a separate group."""
        self._log.prepare()
        group = f"{self.where.group(pipeline)}.redrive"
        member = Membership(self.where, group, "penstock-redrive", "redrive", ttl=_DAY)
        try:
            deadline = time.monotonic() + self.where.session + self.where.patience
            while not member.was_assigned and time.monotonic() < deadline:
                member.pulse(0.05)
            if not member.was_assigned:
                raise StateUnavailable(f"the group {group} of {self.address} has not assigned its partition in time")
            yield member.ownership.owns
        finally:
            member.close()

    def _alter(self, step: str, number: int | None, **asked: bool) -> bool:
        return bool(self._log.write(step, number=number, **asked))

    @property
    def _log(self) -> StateLog:
        return shared(self.where)

    def _under(self, term: Term, do: str, **asked: Any) -> None:
        if not self._log.write(do, pipeline=term.pipeline, epoch=term.epoch, **asked):
            raise ended(term)


def _standing(machine: StateMachine, pipeline: str) -> PipelineState:
    """The state of a pipeline by the records; `is_held` and `standbys` come from the group."""
    entry = machine.of(pipeline)
    moments = [lane.at for lane in entry.lanes.values() if lane.at is not None]
    return PipelineState(
        epoch=entry.epoch,
        holder=entry.holder,
        watermarks=_watermarks(machine, pipeline),
        advanced_at=datetime.fromtimestamp(max(moments), UTC) if moments else None,
        delivered=sum(lane.total for lane in entry.lanes.values()),
        rate=sum(lane.rate for lane in entry.lanes.values()),
        error=entry.error,
        trouble=next((lane.trouble for lane in entry.lanes.values() if lane.trouble), None),
        **entry.letters.summary(),
    )


def _watermarks(machine: StateMachine, pipeline: str) -> dict[Lane, Watermark]:
    return {Lane(name): lane.watermark for name, lane in machine.of(pipeline).lanes.items()}
