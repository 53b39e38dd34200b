"""The coordinator in Postgres. `DESIGN.md` in the folder above states its invariants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.change import Lane
from penstock.coordinator import Term
from penstock.coordinators.postgres import address
from penstock.coordinators.postgres.candidate import PostgresCandidate
from penstock.coordinators.postgres.claim import PostgresClaim, claimed
from penstock.coordinators.postgres.idle import borrowed
from penstock.coordinators.postgres.letters import PostgresLetters
from penstock.coordinators.postgres.locks import ALIVE, number_of
from penstock.coordinators.postgres.schema import NAME
from penstock.coordinators.postgres.store import StateStore
from penstock.coordinators.row_coordinator import RowCoordinator
from penstock.errors import StateUnavailable
from penstock.text.dsn import shown

_TERM = f"""
select epoch, holder, coalesce({ALIVE}, false), error,
    (select count(*) from {NAME}.standbys where pipeline = :pipeline and {ALIVE})
from {NAME}.terms where pipeline = :pipeline
"""


@dataclass(frozen=True)
class PostgresCoordinator(RowCoordinator[StateStore]):
    """Terms and watermarks in a Postgres database; processes of any machine share it."""

    dsn: str = field(repr=False)
    letters_in = PostgresLetters
    locking = " for update"

    def __post_init__(self) -> None:
        address.patience(self.dsn)  # refuses a malformed address at once

    @property
    def address(self) -> str:
        """The database, without secrets."""
        return shown(self.dsn)

    def examine(self) -> None:
        """Raise the error that prevents the use of this store; nothing is changed."""
        with borrowed(self.dsn) as store:
            store.examine()

    def candidate(self, pipeline: str, holder: str) -> PostgresCandidate:
        """Stand for a pipeline; makes the tables if there are none."""
        return PostgresCandidate(self.dsn, pipeline, holder, self.ttl, self.clock)

    def claim(self, term: Term, lane: Lane, attempt: int) -> AbstractContextManager[PostgresClaim]:
        """Hold a lane; blocks while a predecessor of this term still does."""
        return claimed(self.dsn, term, lane, attempt, self.grace)

    @contextmanager
    def _reading(self) -> Iterator[StateStore | None]:
        with borrowed(self.dsn) as store:
            yield None if store.is_new else store

    @contextmanager
    def _writing(self) -> Iterator[StateStore]:
        with borrowed(self.dsn) as store, store.atomic():
            yield store

    @contextmanager
    def _sole(self, pipeline: str) -> Iterator[bool]:
        with borrowed(self.dsn) as store:
            [(is_sole,)] = store.rows("select pg_try_advisory_lock(:lock)", lock=number_of("redrive", pipeline))
            try:
                yield is_sole
            finally:
                with suppress(StateUnavailable):  # then the session has ended, and the lock with it
                    store.rows("select pg_advisory_unlock_all()")

    def _term(self, store: StateStore, pipeline: str) -> dict[str, Any]:
        found = store.rows(_TERM, pipeline=pipeline)
        epoch, holder, is_held, error, standbys = found[0] if found else (0, None, False, None, 0)
        term = {"epoch": epoch, "holder": holder, "is_held": is_held, "error": json.loads(error) if error else None}
        return {**term, "standbys": standbys}
