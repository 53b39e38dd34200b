"""One process's standing for one pipeline."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import closing, suppress

from penstock.coordinator import Term
from penstock.coordinators.observation import Sighting, Verdict, judge, sight, trusted_until
from penstock.coordinators.office import Office
from penstock.coordinators.postgres import presence
from penstock.coordinators.postgres.address import PATIENCE
from penstock.coordinators.postgres.schema import NAME
from penstock.coordinators.postgres.store import Store
from penstock.errors import PenstockError, StateInvalid, StateUnavailable

_LOOK = f"select epoch, beat, seat, {presence.ALIVE}, coalesce(ttl, %(ttl)s) from {NAME}.terms where pipeline = %(pipeline)s"
_ENTER = f"insert into {NAME}.terms (pipeline, epoch) values (%(pipeline)s, 0) on conflict do nothing"
_TAKE = f"""
update {NAME}.terms set epoch = epoch + 1, holder = %(holder)s, seat = %(mine)s, beat = 0, beat_at = now(), ttl = %(ttl)s,
    error = null
where pipeline = %(pipeline)s and epoch = %(epoch)s and beat = %(beat)s and seat is not distinct from %(seat)s::bigint
"""
_RENEW = f"""
update {NAME}.terms set beat = beat + 1, beat_at = now(), seat = %(mine)s
where pipeline = %(pipeline)s and epoch = %(epoch)s and seat = %(seat)s
"""
_RESIGN = f"update {NAME}.terms set seat = null where pipeline = %(pipeline)s and epoch = %(epoch)s and seat = %(seat)s"


class PostgresCandidate:
    """Holds a session, and in it the lock that proves it alive."""

    def __init__(self, dsn: str, pipeline: str, holder: str, ttl: float, clock: Callable[[], float]) -> None:
        self._dsn, self._pipeline, self._holder, self._ttl, self._clock = dsn, pipeline, holder, ttl, clock
        self._office = Office(pipeline, holder)
        self._seat = self._led_from = 0  # where it sits, and the seat that the term names
        self._sighting: Sighting | None = None
        self._trusted_until = self._noted_at = float("-inf")
        self._store = self._sit()

    def campaign(self) -> Term | None:
        """Take the term if it is free, or its holder's session has ended or fallen silent; one's own is taken anew."""
        self._sit_again()
        epoch, beat, seat, is_alive, ttl = self._look()
        now = self._clock()
        self._sighting = sight(self._sighting, epoch, beat, now)
        verdict = judge(self._sighting, seat in (None, self._seat), is_alive, now, ttl)
        if verdict is Verdict.HELD or not self._take(epoch, beat, seat):
            self._wait(now)
        return self._office.term

    def renew(self) -> None:
        """Say that the holder lives. Raises TermLost, also when nobody could be told for as long as it trusts itself."""
        term, asked_at = self._office.held(), self._clock()
        try:
            renewed = self._renew(term, self._trusted_until - asked_at)
        except StateUnavailable as error:
            if self._clock() < self._trusted_until:
                raise
            raise self._office.lost("the state could not be reached for too long") from error
        if not renewed:
            raise self._office.lost("another process has taken over")
        self._led_from, self._trusted_until = self._seat, trusted_until(asked_at, self._ttl)

    def resign(self) -> None:
        """Give the term back, so that a standby need not wait."""
        if term := self._office.term:
            self._store.write(_RESIGN, pipeline=self._pipeline, epoch=term.epoch, seat=self._led_from)
            self._office.leave()

    def close(self) -> None:
        """Leave without resigning what is held."""
        with suppress(StateUnavailable, StateInvalid), closing(self._store):
            presence.leave(self._store, self._pipeline, self._seat)
            self._store.rows("select pg_advisory_unlock_all()")  # the server would take a moment to notice

    def _sit(self, patience: float | None = None) -> Store:
        """A new session in a new seat: the old one's lock may be held until the server notices its end."""
        store, self._seat = Store(self._dsn, creates=True, patience=patience), secrets.randbits(62) + 1
        try:
            store.rows("select pg_advisory_lock(%(seat)s)", seat=self._seat)
        except PenstockError:
            store.close()
            raise
        return store

    def _sit_again(self, patience: float | None = None) -> None:
        if not self._store.is_usable():
            self._store.close()
            self._store = self._sit(patience)

    def _look(self) -> tuple[int, int, int | None, bool | None, float]:
        """The term; it lasts as long as its holder says."""
        facts = {"pipeline": self._pipeline, "ttl": self._ttl}
        if not (rows := self._store.rows(_LOOK, **facts)):
            self._store.write(_ENTER, pipeline=self._pipeline)
            rows = self._store.rows(_LOOK, **facts)
        return rows[0]

    def _take(self, epoch: int, beat: int, seat: int | None) -> bool:
        asked_at = self._clock()
        facts = {"pipeline": self._pipeline, "epoch": epoch, "beat": beat, "seat": seat}
        if not self._store.write(_TAKE, holder=self._holder, mine=self._seat, ttl=self._ttl, **facts):
            return False
        self._office.enter(epoch + 1)
        self._led_from = self._seat
        self._trusted_until = trusted_until(asked_at, self._ttl)
        self._noted_at = float("-inf")
        presence.leave(self._store, self._pipeline, self._seat)
        presence.sweep(self._store, self._pipeline)
        return True

    def _renew(self, term: Term, trusted_for: float) -> bool:
        if not self._store.is_usable():
            if trusted_for < PATIENCE:
                raise self._office.lost("its session has ended, and there is no time left for another")
            self._sit_again(min(self._store.patience, trusted_for))
        with self._store.within(min(self._store.patience, trusted_for) if trusted_for > 0 else PATIENCE):
            return self._store.write(_RENEW, mine=self._seat, pipeline=term.pipeline, epoch=term.epoch, seat=self._led_from)

    def _wait(self, now: float) -> None:
        self._office.leave()
        if now - self._noted_at >= self._ttl / 5:
            presence.wait_in(self._store, self._pipeline, self._seat)
            self._noted_at = now
