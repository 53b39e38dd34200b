"""A candidate for one pipeline in a state file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.coordinator import Term
from penstock.coordinators import locks
from penstock.coordinators.candidate import RowCandidate, TermRow
from penstock.coordinators.sqlite import presence
from penstock.coordinators.sqlite.condition import Condition
from penstock.coordinators.sqlite.store import StateStore
from penstock.errors import StateInvalid, StateUnavailable


class SqliteCandidate(RowCandidate):
    """Holds a lock that dies with the process, and a connection."""

    _store: StateStore

    def __init__(self, path: Path, pipeline: str, holder: str, ttl: float, clock: Callable[[], float]) -> None:
        super().__init__(pipeline, holder, ttl, clock)
        self._path, self._seat = path, presence.new_seat()
        self._open()
        self._lock = self._sit()

    def close(self) -> None:
        """Leave without resigning."""
        with suppress(StateUnavailable, StateInvalid):
            self._leave()
        self._lock.release()
        self._store.close()

    def _open(self) -> None:
        self._store, self._condition = StateStore(self._path, creates=True), Condition(self._path)

    def _sit(self) -> locks.Lock:
        while not (lock := locks.seize(presence.lock_of(self._path, self._seat))):
            pass  # another process that removes dead files held it for a moment
        return lock

    def _look(self) -> TermRow:
        if self._store.is_replaced():
            self._store.close()
            self._open()
        seen = super()._look()
        return seen._replace(is_alive=presence.is_alive(self._path, seen.seat) if seen.seat else None)

    def _take(self, seen: TermRow) -> bool:
        self._store.sync("full")
        is_taken = super()._take(seen)
        self._store.sync("normal")
        return is_taken

    def _renew(self, term: Term, trusted_for: float) -> str | None:
        reason = super()._renew(term, trusted_for)
        return reason or ("the state file was replaced" if self._store.is_replaced() else None)

    def _sweep(self) -> None:
        presence.sweep(self._store, self._pipeline, self._ttl)

    def _examine(self) -> None:
        self._condition.examine()
