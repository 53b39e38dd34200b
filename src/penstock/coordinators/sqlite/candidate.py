"""One process's standing for one pipeline."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.coordinator import Term
from penstock.coordinators import locks
from penstock.coordinators.candidate import RowCandidate, TermRow
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


class SqliteCandidate(RowCandidate):
    """Holds a lock that dies with the process, and a connection."""

    def __init__(self, path: Path, pipeline: str, holder: str, ttl: float, clock: Callable[[], float]) -> None:
        super().__init__(pipeline, holder, ttl, clock)
        self._path, self._seat = path, presence.new_seat()
        self._open()
        self._lock = self._sit()

    def close(self) -> None:
        """Leave without resigning what is held."""
        with suppress(StateUnavailable, StateInvalid):
            presence.leave(self._store, self._pipeline, self._seat)
        self._lock.release()
        self._store.close()

    def _open(self) -> None:
        self._store, self._condition = Store(self._path, creates=True), Condition(self._path)

    def _sit(self) -> locks.Lock:
        while not (lock := locks.seize(presence.lock_of(self._path, self._seat))):
            pass  # another process that removes dead files had it for a moment
        return lock

    def _look(self) -> TermRow:
        if self._store.is_replaced():
            self._store.close()
            self._open()
        sql = f"select epoch, beat, seat, coalesce(ttl, {self._ttl}) from terms where pipeline = ?"
        if not (rows := self._store.rows(sql, self._pipeline)):
            self._store.write("insert or ignore into terms (pipeline, epoch) values (?, 0)", self._pipeline)
            rows = self._store.rows(sql, self._pipeline)
        epoch, beat, seat, ttl = rows[0]
        return TermRow(epoch, beat, seat, presence.is_alive(self._path, seat) if seat else None, ttl)

    def _take(self, seen: TermRow) -> bool:
        self._store.sync("full")
        facts = (self._holder, self._seat, time.time(), self._ttl, self._pipeline, seen.epoch, seen.beat, seen.seat)
        is_taken = self._store.write(_TAKE, *facts)
        self._store.sync("normal")
        return is_taken

    def _renew(self, term: Term, trusted_for: float) -> str | None:
        if not self._store.write(_RENEW, time.time(), term.pipeline, term.epoch, self._seat):
            return "another process has taken over"
        return "the state file was replaced" if self._store.is_replaced() else None

    def _give_up(self, term: Term) -> None:
        self._store.write(_RESIGN, self._pipeline, term.epoch, self._seat)

    def _join(self) -> None:
        presence.wait_in(self._store, self._pipeline, self._seat)

    def _leave(self) -> None:
        presence.leave(self._store, self._pipeline, self._seat)
        presence.sweep(self._store, self._pipeline, self._ttl)

    def _examine(self) -> None:
        self._condition.examine()
