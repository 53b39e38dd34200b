"""The holder of a term: the term that it has, and when an observer counts it as gone."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.coordinator import Term
from penstock.errors import TermLost

TRUST = 0.9
"""The part of a ttl for which a holder trusts its term: clocks do not run equally fast."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A beat of a holder, and when this observer first saw it on its own monotonic clock."""

    epoch: int
    beat: int
    since: float


def sight(last: Sighting | None, epoch: int, beat: int, now: float) -> Sighting:
    """The sighting to remember: the last one while epoch and beat stay the same."""
    return last if last and (last.epoch, last.beat) == (epoch, beat) else Sighting(epoch, beat, now)


def is_gone(sighting: Sighting, is_alive: bool | None, now: float, ttl: float) -> bool:
    """Whether a holder is dead or silent. `is_alive`: None if its life cannot be observed."""
    return is_alive is False or now - sighting.since >= ttl


def trusted_until(asked_at: float, ttl: float) -> float:
    """The time until which a holder may trust a renewal that it requested at `asked_at`: before any observer judges it silent."""
    return asked_at + ttl * TRUST


class HeldTerm:
    """The term of a candidate; none at first."""

    def __init__(self, pipeline: str, holder: str) -> None:
        self._pipeline, self._holder = pipeline, holder
        self.term: Term | None = None

    def enter(self, epoch: int) -> None:
        """Hold the term of this epoch."""
        self.term = Term(self._pipeline, self._holder, epoch)

    def leave(self) -> Term | None:
        """Hold no term; returns the previous one."""
        term, self.term = self.term, None
        return term

    def held(self) -> Term:
        """The term. Raises TermLost if there is none."""
        if not self.term:
            raise TermLost(f"{self._holder} does not lead {self._pipeline}")
        return self.term

    def lost(self, reason: str, kind: type[TermLost] = TermLost) -> TermLost:
        """Hold no term, for this reason; returns the error to raise."""
        epoch = self.held().epoch
        self.term = None
        return kind(f"{self._holder} no longer leads {self._pipeline} (term {epoch}): {reason}")


def ended(term: Term) -> TermLost:
    """The error of a holder whose term is not the current one."""
    return TermLost(f"{term.holder} no longer leads {term.pipeline}: its term {term.epoch} has ended")
