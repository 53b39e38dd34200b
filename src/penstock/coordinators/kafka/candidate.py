"""A candidate for one pipeline: the group decides which member may take the term, and the log which process has it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress

from penstock.coordinator import Term
from penstock.coordinators.holder import HeldTerm
from penstock.coordinators.kafka.address import Address
from penstock.coordinators.kafka.log import shared
from penstock.coordinators.kafka.membership import Membership
from penstock.errors import StateInvalid, StateUnavailable, TermFenced

SETTLING = 3
"""Limit for the group's decision about a term that no process has, as a multiple of the limit for other answers."""


class KafkaCandidate:
    """A member of the pipeline's group, from its first campaign on."""

    def __init__(self, place: Address, pipeline: str, holder: str, ttl: float, clock: Callable[[], float]) -> None:
        self._place, self._pipeline, self._holder, self._ttl, self._clock = place, pipeline, holder, ttl, clock
        self._log = shared(place)
        self._seat = f"penstock-{secrets.token_hex(8)}"
        self._member: Membership | None = None
        self._revocations = 0  # of its member before the present term
        self._held = HeldTerm(pipeline, holder)

    def campaign(self) -> Term | None:
        """Take the term if this member owns partition zero: the previous owner is gone, or was silent for too long."""
        member = self._joined()
        self._held.leave()
        deadline = time.monotonic() + SETTLING * self._place.patience
        while True:
            member.pulse(0.05)
            epoch, seat = self._log.look(lambda machine: (machine.of(self._pipeline).epoch, machine.of(self._pipeline).seat))
            is_free = seat in (None, self._seat)
            if member.check():
                self._revocations = member.ownership.revocations
                asked = {"pipeline": self._pipeline, "holder": self._holder, "seat": self._seat, "over": epoch}
                if taken := self._log.write("take", **asked):
                    self._held.enter(taken)
                return self._held.term
            if (not is_free and not member.ownership.owns and member.was_assigned) or time.monotonic() > deadline:
                return None

    def renew(self) -> None:
        """Send a heartbeat and receive it. Raises TermLost, TermFenced, StateUnavailable."""
        term = self._held.held()
        member = self._joined()
        is_seen = member.check() and member.pulse(min(self._place.patience, self._place.deadline))
        if member.ownership.revocations > self._revocations:
            raise self._held.lost("the group gave partition zero to another member")
        if not member.check():
            silence = f"it has received no heartbeat of its own for {self._place.deadline:g} s"
            raise self._held.lost(silence, TermFenced)
        if not is_seen:
            raise StateUnavailable(f"no heartbeat came back from {self._place.shown}")
        if not self._log.look(lambda machine: machine.of(self._pipeline).is_led(term.epoch)):
            raise self._held.lost("another process has taken over")
        self._log.tidy()

    def resign(self) -> None:
        """Give the term back and leave the group, so that a standby need not wait."""
        term = self._held.leave()
        try:
            if term:
                self._log.write("resign", pipeline=self._pipeline, epoch=term.epoch, seat=self._seat)
        finally:
            self._leave()

    def close(self) -> None:
        """Leave, and resign a held term."""
        with suppress(StateUnavailable, StateInvalid):
            self.resign()

    def _joined(self) -> Membership:
        if not self._member:
            self._log.prepare()
            group = self._place.group(self._pipeline)
            self._member = Membership(self._place, group, self._seat, self._holder, ttl=self._ttl, clock=self._clock)
        return self._member

    def _leave(self) -> None:
        member, self._member = self._member, None
        if member:
            member.close()
