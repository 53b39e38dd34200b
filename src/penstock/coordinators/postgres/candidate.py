"""One process's standing for one pipeline."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import closing, suppress

from penstock.coordinator import Term
from penstock.coordinators.candidate import RowCandidate, TermRow
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


class PostgresCandidate(RowCandidate):
    """Holds a session, and in it the lock that proves it alive."""

    def __init__(self, dsn: str, pipeline: str, holder: str, ttl: float, clock: Callable[[], float]) -> None:
        super().__init__(pipeline, holder, ttl, clock)
        self._dsn = dsn
        self._seat = self._led_from = 0  # where it sits, and the seat that the term names
        self._store = self._sit()

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

    def _look(self) -> TermRow:
        self._sit_again()
        facts = {"pipeline": self._pipeline, "ttl": self._ttl}
        if not (rows := self._store.rows(_LOOK, **facts)):
            self._store.write(_ENTER, pipeline=self._pipeline)
            rows = self._store.rows(_LOOK, **facts)
        return TermRow(*rows[0])

    def _take(self, seen: TermRow) -> bool:
        facts = {"pipeline": self._pipeline, "epoch": seen.epoch, "beat": seen.beat, "seat": seen.seat}
        is_taken = self._store.write(_TAKE, holder=self._holder, mine=self._seat, ttl=self._ttl, **facts)
        self._led_from = self._seat if is_taken else self._led_from
        return is_taken

    def _renew(self, term: Term, trusted_for: float) -> str | None:
        if not self._store.is_usable():
            if trusted_for < PATIENCE:
                return "its session has ended, and there is no time left for another"
            self._sit_again(min(self._store.patience, trusted_for))
        with self._store.within(min(self._store.patience, trusted_for) if trusted_for > 0 else PATIENCE):
            if not self._store.write(_RENEW, mine=self._seat, pipeline=term.pipeline, epoch=term.epoch, seat=self._led_from):
                return "another process has taken over"
        self._led_from = self._seat
        return None

    def _give_up(self, term: Term) -> None:
        self._store.write(_RESIGN, pipeline=self._pipeline, epoch=term.epoch, seat=self._led_from)

    def _join(self) -> None:
        presence.wait_in(self._store, self._pipeline, self._seat)

    def _leave(self) -> None:
        presence.leave(self._store, self._pipeline, self._seat)
        presence.sweep(self._store, self._pipeline)
