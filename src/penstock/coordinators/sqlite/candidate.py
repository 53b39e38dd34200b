"""A candidate for one pipeline in a state file, its seat, and the lock that proves it alive."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from penstock.coordinator import Term
from penstock.coordinators import locks
from penstock.coordinators.candidate import RowCandidate, TermRow
from penstock.coordinators.sqlite.condition import Condition
from penstock.coordinators.sqlite.store import StateStore, folder
from penstock.errors import StateInvalid, StateUnavailable

_REMOVE = "delete from standbys where pipeline = :pipeline and seat = :seat"


class SqliteCandidate(RowCandidate):
    """Holds a lock that dies with the process, and a connection."""

    _store: StateStore

    def __init__(self, path: Path, pipeline: str, holder: str, ttl: float, clock: Callable[[], float]) -> None:
        super().__init__(pipeline, holder, ttl, clock)
        self._path, self._seat = path, f"{locks.machine()}/{uuid.uuid4().hex}"
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
        while not (lock := locks.seize(_lock_of(self._path, self._seat))):
            pass  # another process that removes dead files held it for a moment
        return lock

    def _look(self) -> TermRow:
        if self._store.is_replaced():
            self._store.close()
            self._open()
        seen = super()._look()
        return seen._replace(is_alive=_is_alive(self._path, seen.seat) if seen.seat else None)

    def _take(self, seen: TermRow) -> bool:
        self._store.sync("full")
        is_taken = super()._take(seen)
        self._store.sync("normal")
        return is_taken

    def _renew(self, term: Term, trusted_for: float) -> str | None:
        reason = super()._renew(term, trusted_for)
        return reason or ("the state file was replaced" if self._store.is_replaced() else None)

    def _sweep(self) -> None:
        for seat in standbys(self._store, self._pipeline, self._ttl, present=False):
            self._store.write(_REMOVE, pipeline=self._pipeline, seat=seat)
        locks.reap(folder(self._path).glob("seat.*"))

    def _examine(self) -> None:
        self._condition.examine()


def standbys(store: StateStore, pipeline: str, ttl: float, *, present: bool = True) -> Sequence[str]:
    """The seats of the standbys of a pipeline; with `present` False those that are gone."""
    rows = store.rows("select seat, seen_at from standbys where pipeline = :pipeline", pipeline=pipeline)
    return [seat for seat, seen_at in rows if is_present(store.path, seat, seen_at, ttl) is present]


def is_present(path: Path, seat: str, seen_at: float, ttl: float) -> bool:
    """Whether the candidate in this seat lives, for display: by the wall clock where a lock proves nothing."""
    alive = _is_alive(path, seat)
    return abs(time.time() - seen_at) <= ttl if alive is None else alive


def _is_alive(path: Path, seat: str) -> bool | None:
    """Whether the candidate in this seat lives; None for one on another machine."""
    return locks.is_locked(_lock_of(path, seat)) if seat.startswith(locks.machine() + "/") else None


def _lock_of(path: Path, seat: str) -> Path:
    return folder(path) / f"seat.{locks.digest(seat)}"
