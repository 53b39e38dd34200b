"""The exclusive right to deliver one lane."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace

from penstock.change import Lane
from penstock.coordinator import Tally, Term
from penstock.coordinators.claim import require_free
from penstock.coordinators.postgres.letters import PostgresLetters
from penstock.coordinators.postgres.locks import number_of
from penstock.coordinators.postgres.schema import NAME
from penstock.coordinators.postgres.store import StateStore
from penstock.coordinators.row_claim import ATTEMPT, LANE, TERM, RowClaim
from penstock.cursor import Watermark
from penstock.errors import StateUnavailable

TICK = 0.02

_TERM = TERM.format(schema=f"{NAME}.")
_GRASP = f"""
select w.epoch, w.attempt, exists ({_TERM}), pg_try_advisory_lock(:lock) from {NAME}.watermarks w where {LANE}
"""
# `for share` waits for a term that is being taken at this moment, so that no claim begins under a term that has just ended.
_REGISTER = f"""
with held as ({_TERM} for share)
update {NAME}.watermarks w set epoch = :epoch, attempt = :attempt, step = 0
where {LANE} and (w.epoch, w.attempt) < (:epoch, :attempt) and exists (select from held)
returning cursor, position, delivered
"""
_STEP = f"select w.step from {NAME}.watermarks w where {ATTEMPT} and exists ({_TERM})"
_STAY = f"""
with held as ({_TERM} for share)
select w.step from {NAME}.watermarks w where {ATTEMPT} and exists (select from held) for share of w
"""


class PostgresClaim(RowClaim):
    """A lane under (epoch, attempt), in a session of its own; if the session ends, in another one."""

    letters_in = PostgresLetters
    more = ", step = :step"
    _store: StateStore

    def __init__(self, store: StateStore, term: Term, lane: Lane, attempt: int) -> None:
        self._step, self._is_locked = 0, True
        self._counted = Tally()  # counts that the store has already, though the answer was lost
        self._unanswered: Tally | None = None
        super().__init__(store, term, lane, attempt, _REGISTER)

    def close(self) -> None:
        """Release the lane."""
        with suppress(StateUnavailable), closing(self._store):
            self._store.rows("select pg_advisory_unlock_all()")

    def _stays(self) -> bool:
        return bool(self._store.rows(_STAY, **self._mine))

    def _write(self, watermark: Watermark, tally: Tally) -> bool:
        known = self._counted
        changes, dropped, passed = tally.delivered - known.delivered, tally.dropped - known.dropped, tally.passed - known.passed
        self._unanswered, self._step = tally, self._step + 1
        self._mine["step"] = self._step
        stands = super()._write(watermark, replace(tally, delivered=changes, dropped=dropped, passed=passed))
        self._unanswered, self._counted = None, Tally()
        return stands

    def _recover(self) -> None:
        """After the end of a session: open another, lock the lane again, and find out whether the last write arrived."""
        if not self._store.is_usable():
            self._store.close()
            self._store, self._is_locked = StateStore(self._store.dsn), False
        if self._unanswered is not None:
            step = self._store.rows(_STEP, **self._mine)
            self._counted = self._unanswered if step == [(self._step,)] else self._counted
            self._unanswered = None
        if not self._is_locked:  # until the server notices the end of the old session, its lock keeps successors out
            [(self._is_locked,)] = self._store.rows("select pg_try_advisory_lock(:lock)", lock=lock_of(self._term, self._lane))


@contextmanager
def claimed(dsn: str, term: Term, lane: Lane, attempt: int, grace: float) -> Iterator[PostgresClaim]:
    """A claim, once every predecessor has ended or its grace is over."""
    with closing(StateStore(dsn)) as store:
        _outwait_older_term(store, term, lane, _wait_for_lane(store, term, lane, attempt), grace)
        with closing(PostgresClaim(store, term, lane, attempt)) as claim:
            yield claim


def _wait_for_lane(store: StateStore, term: Term, lane: Lane, attempt: int) -> int:
    """Lock the lane under this term; returns the epoch of its last claim. Raises as soon as the claim cannot succeed."""
    facts = {"pipeline": term.pipeline, "lane": lane, "epoch": term.epoch, "lock": lock_of(term, lane)}
    while True:
        found = [] if store.is_new else store.rows(_GRASP, **facts)
        require_free(term, lane, attempt, found[0][:2] if found else None, is_led=bool(found and found[0][2]))
        if found[0][3]:
            return int(found[0][0])
        time.sleep(TICK)


def _outwait_older_term(store: StateStore, term: Term, lane: Lane, epoch: int, grace: float) -> None:
    """Wait up to `grace` for the last claim of an older term; that claim has awaited those before it."""
    lock, deadline = lock_of(Term(term.pipeline, term.holder, epoch), lane), time.monotonic() + grace
    if epoch == term.epoch:
        return
    while store.rows("select pg_try_advisory_xact_lock(:lock)", lock=lock) == [(False,)] and time.monotonic() < deadline:
        time.sleep(TICK)


def lock_of(term: Term, lane: Lane) -> int:
    """The number of the lock of a lane under a term."""
    return number_of("lane", term.pipeline, lane, term.epoch)
