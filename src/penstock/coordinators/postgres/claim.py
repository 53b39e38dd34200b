"""The sole right to deliver on one lane."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

from penstock.change import Lane
from penstock.coordinator import Tally, Term
from penstock.coordinators.claim import LaneClaim, require_free
from penstock.coordinators.letters import take
from penstock.coordinators.postgres.letters import PostgresLetters
from penstock.coordinators.postgres.numbers import number_of
from penstock.coordinators.postgres.schema import NAME
from penstock.coordinators.postgres.store import Store
from penstock.cursor import Watermark
from penstock.errors import StateUnavailable
from penstock.letter import DeadLetter
from penstock.poison.parked_keys import Hold
from penstock.rows import Row

TICK = 0.02

_CURRENT = f"select from {NAME}.terms t where t.pipeline = %(pipeline)s and t.epoch = %(epoch)s and t.seat is not null"
_LANE = "w.pipeline = %(pipeline)s and w.lane = %(lane)s"
_MINE = f"{_LANE} and w.epoch = %(epoch)s and w.attempt = %(attempt)s and exists ({_CURRENT})"

_GRASP = f"""
select w.epoch, w.attempt, exists ({_CURRENT}), pg_try_advisory_lock(%(lock)s) from {NAME}.watermarks w where {_LANE}
"""
# A term that is being taken at this moment is waited for, so that nobody begins under one that has just ended.
_REGISTER = f"""
with held as ({_CURRENT.replace("select", "select 1", 1)} for share)
update {NAME}.watermarks w set epoch = %(epoch)s, attempt = %(attempt)s, step = 0
where {_LANE} and (w.epoch, w.attempt) < (%(epoch)s, %(attempt)s) and exists (select from held)
returning cursor, position, delivered
"""
_ADVANCE = f"""
update {NAME}.watermarks w set
    cursor = case when %(position)s >= position then %(cursor)s else cursor end, position = greatest(position, %(position)s),
    delivered = greatest(delivered, %(delivered)s::bigint), step = %(step)s, total = total + %(changes)s, rate = %(rate)s,
    advanced_at = now(), trouble = %(trouble)s
where {_MINE}
"""
_STANDS = f"select w.step from {NAME}.watermarks w where {_MINE}"
_STAY = f"""
with held as ({_CURRENT.replace("select", "select 1", 1)} for share)
select w.step from {NAME}.watermarks w where {_LANE} and w.epoch = %(epoch)s and w.attempt = %(attempt)s
and exists (select from held) for share of w
"""


class PostgresClaim(LaneClaim):
    """A lane under (epoch, attempt), in a session of its own; it goes on in another one if that ends."""

    def __init__(self, store: Store, term: Term, lane: Lane, attempt: int) -> None:
        super().__init__(term, lane, attempt)
        self._store = store
        self._mine = {"pipeline": term.pipeline, "lane": lane, "epoch": term.epoch, "attempt": attempt}
        self._step, self._is_locked = 0, True
        self._counted = Tally()  # counts that the store has already, though the answer was lost
        self._unanswered: Tally | None = None
        self._begin(store.rows(_REGISTER, **self._mine))

    def close(self) -> None:
        """Let the lane go."""
        with suppress(StateUnavailable), closing(self._store):
            self._store.rows("select pg_advisory_unlock_all()")

    @property
    def _letters(self) -> PostgresLetters:
        return PostgresLetters(self._store, self._term.pipeline)

    def _holds(self, rows: Collection[Row] | None) -> Sequence[Hold]:
        return self._letters.holds(rows)

    def _take(self, step: str, letters: Sequence[DeadLetter]) -> Any:
        """Under the claim, which no other process ends meanwhile."""
        with self._store.atomic():
            if not self._store.rows(_STAY, **self._mine):
                raise self._lost()
            return take(step, self._letters.queued(), letters)

    def _stands(self) -> bool:
        return bool(self._store.rows(_STANDS, **self._mine))

    def _write(self, watermark: Watermark, tally: Tally) -> bool:
        dropped, passed = tally.dropped - self._counted.dropped, tally.passed - self._counted.passed
        self._unanswered, self._step = tally, self._step + 1
        if dropped or passed:
            with self._store.atomic():
                if stands := self._move(watermark, tally):
                    self._letters.count(dropped=dropped, passed=passed)
        else:
            stands = self._move(watermark, tally)
        self._unanswered, self._counted = None, Tally()
        return stands

    def _move(self, watermark: Watermark, tally: Tally) -> bool:
        place = {"position": watermark.position, "cursor": watermark.cursor, "delivered": watermark.delivered}
        changes, trouble = tally.delivered - self._counted.delivered, json.dumps(dict(tally.trouble)) if tally.trouble else None
        facts = {"rate": tally.rate, "step": self._step, "trouble": trouble}
        return self._store.write(_ADVANCE, **place, changes=changes, **facts, **self._mine)

    def _recover(self) -> None:
        """After the end of a session: another one, the lane's lock, and whether what was written last had arrived."""
        if not self._store.is_usable():
            self._store.close()
            self._store, self._is_locked = Store(self._store.dsn), False
        if self._unanswered is not None:
            step = self._store.rows(_STANDS, **self._mine)
            self._counted = self._unanswered if step == [(self._step,)] else self._counted
            self._unanswered = None
        if not self._is_locked:  # as long as the server believes in the old session, that one keeps successors out
            [(self._is_locked,)] = self._store.rows("select pg_try_advisory_lock(%(lock)s)", lock=lock_of(self._term, self._lane))


@contextmanager
def claimed(dsn: str, term: Term, lane: Lane, attempt: int, grace: float) -> Iterator[PostgresClaim]:
    """A claim, once every predecessor has drawn its last breath, or had its grace."""
    store = Store(dsn)
    try:
        _outwait_older_term(store, term, lane, _wait_for_lane(store, term, lane, attempt), grace)
        claim = PostgresClaim(store, term, lane, attempt)
    except BaseException:
        store.close()
        raise
    try:
        yield claim
    finally:
        claim.close()


def _wait_for_lane(store: Store, term: Term, lane: Lane, attempt: int) -> int:
    """Hold the lane's lock of this term; answers the epoch of who claimed it last. Raises as soon as waiting is in vain."""
    facts = {"pipeline": term.pipeline, "lane": lane, "epoch": term.epoch, "lock": lock_of(term, lane)}
    while True:
        found = [] if store.is_new else store.rows(_GRASP, **facts)
        require_free(term, lane, attempt, found[0][:2] if found else None, is_led=bool(found and found[0][2]))
        if found[0][3]:
            return int(found[0][0])
        time.sleep(TICK)


def _outwait_older_term(store: Store, term: Term, lane: Lane, epoch: int, grace: float) -> None:
    """Wait a while for the last claim of an older term; those before it had their grace when that one began."""
    lock, deadline = lock_of(Term(term.pipeline, term.holder, epoch), lane), time.monotonic() + grace
    if epoch == term.epoch:
        return
    while store.rows("select pg_try_advisory_xact_lock(%(lock)s)", lock=lock) == [(False,)] and time.monotonic() < deadline:
        time.sleep(TICK)


def lock_of(term: Term, lane: Lane) -> int:
    """The number on which whoever holds a lane in a term holds a lock."""
    return number_of("lane", term.pipeline, lane, term.epoch)
