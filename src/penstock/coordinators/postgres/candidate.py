"""A candidate for one pipeline in Postgres."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import closing, suppress

from penstock.coordinator import Term
from penstock.coordinators.candidate import RowCandidate, TermRow
from penstock.coordinators.postgres.address import PATIENCE
from penstock.coordinators.postgres.locks import ALIVE
from penstock.coordinators.postgres.schema import NAME
from penstock.coordinators.postgres.store import StateStore
from penstock.errors import PenstockError, StateInvalid, StateUnavailable


class PostgresCandidate(RowCandidate):
    """Holds a session, and in it the lock that proves it alive."""

    alive = ALIVE
    same_seat = "is not distinct from :seat::bigint"
    _store: StateStore

    def __init__(self, dsn: str, pipeline: str, holder: str, ttl: float, clock: Callable[[], float]) -> None:
        super().__init__(pipeline, holder, ttl, clock)
        self._dsn = dsn
        self._sit()

    def close(self) -> None:
        """Leave without resigning."""
        with suppress(StateUnavailable, StateInvalid), closing(self._store):
            self._leave()
            self._store.rows("select pg_advisory_unlock_all()")  # the server would free them a moment later

    def _sit(self, patience: float | None = None) -> None:
        """Open a session in a new seat: the server may hold the old lock until it notices the end of the old session."""
        store, self._seat = StateStore(self._dsn, creates=True, patience=patience), secrets.randbits(62) + 1
        try:
            store.rows("select pg_advisory_lock(:seat)", seat=self._seat)
        except PenstockError:
            store.close()
            raise
        self._store = store

    def _sit_again(self, patience: float | None = None) -> None:
        if not self._store.is_usable():
            self._store.close()
            self._sit(patience)

    def _look(self) -> TermRow:
        self._sit_again()
        return super()._look()

    def _renew(self, term: Term, trusted_for: float) -> str | None:
        patience = min(self._store.patience, trusted_for) if trusted_for > 0 else PATIENCE
        if not self._store.is_usable():
            if trusted_for < PATIENCE:
                return "its session has ended, and there is no time left for another"
            self._sit_again(patience)
        with self._store.within(patience):
            return super()._renew(term, trusted_for)

    def _sweep(self) -> None:
        self._store.write(f"delete from {NAME}.standbys where pipeline = :pipeline and not ({ALIVE})", pipeline=self._pipeline)
