"""The candidate of the kinds of state that keep a row for each term. A kind adds the proof that a holder lives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from penstock.coordinator import Term
from penstock.coordinators.holder import HeldTerm, Sighting, is_gone, sight, trusted_until
from penstock.coordinators.tables import Tables
from penstock.errors import StateUnavailable

_LOOK = "select epoch, beat, seat, coalesce(ttl, :ttl), {alive} from {schema}terms where pipeline = :pipeline"
_ENTER = "insert into {schema}terms (pipeline, epoch) values (:pipeline, 0) on conflict do nothing"
_TAKE = """
update {schema}terms set epoch = epoch + 1, holder = :holder, seat = :mine, beat = 0, beat_at = {now}, ttl = :ttl, error = null
where pipeline = :pipeline and epoch = :epoch and beat = :beat and seat {same_seat}
"""
_RENEW = """
update {schema}terms set beat = beat + 1, beat_at = {now}, seat = :mine
where pipeline = :pipeline and epoch = :epoch and seat = :seat
"""
_RESIGN = "update {schema}terms set seat = null where pipeline = :pipeline and epoch = :epoch and seat = :seat"
_JOIN = """
insert into {schema}standbys values (:pipeline, :mine, {now}) on conflict (pipeline, seat) do update set seen_at = excluded.seen_at
"""
_LEAVE = "delete from {schema}standbys where pipeline = :pipeline and seat = :mine"


class TermRow(NamedTuple):
    """A term in the store. `ttl`: that of its holder. `is_alive`: None if the life of the holder cannot be observed."""

    epoch: int
    beat: int
    seat: Any
    ttl: float
    is_alive: bool | None


class RowCandidate(ABC):
    """Takes, renews and resigns a term by conditional updates of its row.

    `alive`: whether the seat of a row is alive, in SQL. `same_seat`: the condition that a seat equals `:seat`, also null.
    """

    alive: ClassVar[str] = "null"
    same_seat: ClassVar[str] = "is :seat"
    _store: Tables
    _seat: Any
    _led_from: Any = None  # the seat in the row of the term

    def __init__(self, pipeline: str, holder: str, ttl: float, clock: Callable[[], float]) -> None:
        self._pipeline, self._holder, self._ttl, self._clock = pipeline, holder, ttl, clock
        self._held = HeldTerm(pipeline, holder)
        self._sighting: Sighting | None = None
        self._trusted_until = self._noted_at = float("-inf")

    @abstractmethod
    def _sweep(self) -> None:
        """Remove dead standbys from the list."""

    def _examine(self) -> None:  # noqa: B027 - only some kinds do something
        """Check the state from outside, where a kind can."""

    def campaign(self) -> Term | None:
        """Take the term if it is free, or its holder is dead or silent; a candidate takes its own term anew."""
        seen, now = self._look(), self._clock()
        self._sighting = sight(self._sighting, seen.epoch, seen.beat, now)
        is_free = seen.seat in (None, self._seat) or is_gone(self._sighting, seen.is_alive, now, seen.ttl)
        if not is_free or not self._lead(seen):
            self._wait(now)
        return self._held.term

    def renew(self) -> None:
        """Record that the holder lives. Raises TermLost, also when no write succeeded for as long as the holder trusts its term."""
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
            self._write(_RESIGN, epoch=term.epoch, seat=self._led_from)
            self._held.leave()

    def _lead(self, seen: TermRow) -> bool:
        asked_at = self._clock()
        if not self._take(seen):
            return False
        self._held.enter(seen.epoch + 1)
        self._trusted_until, self._noted_at = trusted_until(asked_at, self._ttl), float("-inf")
        self._leave()
        self._sweep()
        return True

    def _wait(self, now: float) -> None:
        self._held.leave()
        if now - self._noted_at >= self._ttl / 5:
            self._write(_JOIN)
            self._noted_at = now
            self._examine()

    def _look(self) -> TermRow:
        """The row of the term, over a connection that works."""
        sql = _LOOK.format(schema=self._store.schema, alive=self.alive)
        if not (rows := self._store.rows(sql, pipeline=self._pipeline, ttl=self._ttl)):
            self._write(_ENTER)
            rows = self._store.rows(sql, pipeline=self._pipeline, ttl=self._ttl)
        return TermRow(*rows[0])

    def _take(self, seen: TermRow) -> bool:
        """Write the next term if the row is unchanged."""
        is_taken = self._write(_TAKE, holder=self._holder, ttl=self._ttl, epoch=seen.epoch, beat=seen.beat, seat=seen.seat)
        self._led_from = self._seat if is_taken else self._led_from
        return is_taken

    def _renew(self, term: Term, trusted_for: float) -> str | None:
        """Write the next beat; the reason if the term is lost. Raises StateUnavailable."""
        if not self._write(_RENEW, epoch=term.epoch, seat=self._led_from):
            return "another process has taken over"
        self._led_from = self._seat
        return None

    def _leave(self) -> None:
        """Leave the list of standbys."""
        self._write(_LEAVE)

    def _write(self, sql: str, **values: object) -> bool:
        sql = sql.format(schema=self._store.schema, now=self._store.now, same_seat=self.same_seat)
        return self._store.write(sql, pipeline=self._pipeline, mine=self._seat, **values)
