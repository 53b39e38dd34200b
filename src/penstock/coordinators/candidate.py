"""The candidate of the kinds of state that keep a row for each term. A kind adds its statements, and how a holder shows life."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.coordinator import Term
from penstock.coordinators.held_term import HeldTerm
from penstock.coordinators.observation import Sighting, Verdict, judge, sight, trusted_until
from penstock.errors import StateUnavailable


class TermRow(NamedTuple):
    """A term as the store has it. `is_alive` is None where the life of its holder cannot be observed; `ttl` is the holder's."""

    epoch: int
    beat: int
    seat: Any
    is_alive: bool | None
    ttl: float


class RowCandidate(ABC):
    """Takes, renews and resigns a term by conditional updates of its row."""

    _seat: Any

    def __init__(self, pipeline: str, holder: str, ttl: float, clock: Callable[[], float]) -> None:
        self._pipeline, self._holder, self._ttl, self._clock = pipeline, holder, ttl, clock
        self._held = HeldTerm(pipeline, holder)
        self._sighting: Sighting | None = None
        self._trusted_until = self._noted_at = float("-inf")

    @abstractmethod
    def _look(self) -> TermRow:
        """The row of the term, over a connection that works."""

    @abstractmethod
    def _take(self, seen: TermRow) -> bool:
        """Write the next term if the row is as it was seen."""

    @abstractmethod
    def _renew(self, term: Term, trusted_for: float) -> str | None:
        """Write the next beat; the reason if the term is lost. Raises StateUnavailable."""

    @abstractmethod
    def _give_up(self, term: Term) -> None:
        """Write the term as free, if the row still has it."""

    @abstractmethod
    def _join(self) -> None:
        """Enter the list of standbys."""

    @abstractmethod
    def _leave(self) -> None:
        """Leave the list of standbys, and remove from it those that are gone."""

    def _examine(self) -> None:  # noqa: B027 - only some kinds do something
        """Look at the state from outside, where a kind can."""

    def campaign(self) -> Term | None:
        """Take the term if it is free, or its holder is dead or silent; a candidate takes its own term anew."""
        seen, now = self._look(), self._clock()
        self._sighting = sight(self._sighting, seen.epoch, seen.beat, now)
        verdict = judge(self._sighting, seen.seat in (None, self._seat), seen.is_alive, now, seen.ttl)
        if verdict is Verdict.HELD or not self._lead(seen):
            self._wait(now)
        return self._held.term

    def renew(self) -> None:
        """Write that the holder lives. Raises TermLost, also when nothing could be written for as long as it trusts itself."""
        term, asked_at = self._held.held(), self._clock()
        try:
            reason = self._renew(term, self._trusted_until - asked_at)
        except StateUnavailable as error:
            if self._clock() < self._trusted_until:
                raise
            raise self._held.lost(f"the state could not be written for too long: {error.message}") from error
        if reason:
            raise self._held.lost(reason)
        self._trusted_until = trusted_until(asked_at, self._ttl)
        self._examine()

    def resign(self) -> None:
        """Give the term back, so that a standby need not wait."""
        if term := self._held.term:
            self._give_up(term)
            self._held.leave()

    def _lead(self, seen: TermRow) -> bool:
        asked_at = self._clock()
        if not self._take(seen):
            return False
        self._held.enter(seen.epoch + 1)
        self._trusted_until, self._noted_at = trusted_until(asked_at, self._ttl), float("-inf")
        self._leave()
        return True

    def _wait(self, now: float) -> None:
        self._held.leave()
        if now - self._noted_at >= self._ttl / 5:
            self._join()
            self._noted_at = now
            self._examine()
