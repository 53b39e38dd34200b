"""One process's standing for one pipeline."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.coordinator import Term
from penstock.coordinators import locks
from penstock.coordinators.observation import Sighting, Verdict, judge, sight, trusted_until
from penstock.coordinators.office import Office
from penstock.coordinators.sqlite import presence
from penstock.coordinators.sqlite.condition import Condition
from penstock.coordinators.sqlite.store import Store
from penstock.errors import StateInvalid, StateUnavailable

_TAKE = """
update terms set epoch = epoch + 1, holder = ?, seat = ?, beat = 0, beat_at = ?, ttl = ?, error = null
where pipeline = ? and epoch = ? and beat = ? and seat is ?
"""
_RENEW = "update terms set beat = beat + 1, beat_at = ? where pipeline = ? and epoch = ? and seat = ?"
_RESIGN = "update terms set seat = null where pipeline = ? and epoch = ? and seat = ?"


class SqliteCandidate:
    """Holds a lock that dies with the process, and a connection."""

    def __init__(self, path: Path, pipeline: str, holder: str, ttl: float, clock: Callable[[], float]) -> None:
        self._path, self._pipeline, self._holder, self._ttl, self._clock = path, pipeline, holder, ttl, clock
        self._seat = presence.new_seat()
        self._office = Office(pipeline, holder)
        self._sighting: Sighting | None = None
        self._trusted_until = self._noted_at = float("-inf")
        self._store = Store(path, creates=True)
        self._condition = Condition(path)
        self._lock = self._sit()

    def campaign(self) -> Term | None:
        """Take the term if it is free, or its holder has died or fallen silent; one's own is taken anew."""
        if self._store.is_replaced():
            self._store.close()
            self._store = Store(self._path, creates=True)
            self._condition = Condition(self._path)
        epoch, beat, seat, ttl = self._look()
        now = self._clock()
        self._sighting = sight(self._sighting, epoch, beat, now)
        is_alive = presence.is_alive(self._path, seat) if seat else None
        verdict = judge(self._sighting, seat in (None, self._seat), is_alive, now, ttl)
        if verdict is Verdict.HELD or not self._take(epoch, beat, seat):
            self._wait(now)
        return self._office.term

    def renew(self) -> None:
        """Say that the holder lives. Raises TermLost, also when nobody could be told for as long as it trusts itself."""
        term, asked_at = self._office.held(), self._clock()
        try:
            renewed = self._store.write(_RENEW, time.time(), term.pipeline, term.epoch, self._seat)
        except StateUnavailable as error:
            if self._clock() < self._trusted_until:
                raise
            raise self._office.lost(f"the state file could not be written for too long: {error.message}") from error
        if not renewed or self._store.is_replaced():
            raise self._office.lost("another process has taken over" if not renewed else "the state file was replaced")
        self._trusted_until = trusted_until(asked_at, self._ttl)
        self._condition.examine()

    def resign(self) -> None:
        """Give the term back, so that a standby need not wait."""
        if term := self._office.term:
            self._store.write(_RESIGN, self._pipeline, term.epoch, self._seat)
            self._office.leave()

    def close(self) -> None:
        """Leave without resigning what is held."""
        with suppress(StateUnavailable, StateInvalid):
            presence.leave(self._store, self._pipeline, self._seat)
        self._lock.release()
        self._store.close()

    def _sit(self) -> locks.Lock:
        while not (lock := locks.seize(presence.lock_of(self._path, self._seat))):
            pass  # somebody who removes dead files had it for a moment
        return lock

    def _look(self) -> tuple[int, int, str | None, float]:
        """The term; it lasts as long as its holder says."""
        sql = f"select epoch, beat, seat, coalesce(ttl, {self._ttl}) from terms where pipeline = ?"
        if rows := self._store.rows(sql, self._pipeline):
            return rows[0]
        self._store.write("insert or ignore into terms (pipeline, epoch) values (?, 0)", self._pipeline)
        return self._store.rows(sql, self._pipeline)[0]

    def _take(self, epoch: int, beat: int, seat: str | None) -> bool:
        asked_at = self._clock()
        self._store.sync("full")
        facts = (self._holder, self._seat, time.time(), self._ttl, self._pipeline, epoch, beat, seat)
        is_taken = self._store.write(_TAKE, *facts)
        self._store.sync("normal")
        if not is_taken:
            return False
        self._office.enter(epoch + 1)
        self._trusted_until = trusted_until(asked_at, self._ttl)
        self._noted_at = float("-inf")
        presence.leave(self._store, self._pipeline, self._seat)
        presence.sweep(self._store, self._pipeline, self._ttl)
        return True

    def _wait(self, now: float) -> None:
        self._office.leave()
        if now - self._noted_at >= self._ttl / 5:
            presence.wait_in(self._store, self._pipeline, self._seat)
            self._noted_at = now
            self._condition.examine()
