"""The sole right to deliver on one lane."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from threading import Lock

from penstock.change import Lane
from penstock.coordinator import Tally, Term
from penstock.coordinators.postgres import letters
from penstock.coordinators.postgres.numbers import number_of
from penstock.coordinators.postgres.schema import NAME
from penstock.coordinators.postgres.store import Store
from penstock.cursor import Cursor, Watermark
from penstock.errors import StateLost, StateUnavailable, TermLost
from penstock.holding import Hold
from penstock.letter import DeadLetter
from penstock.rows import Row

TICK = 0.02
TOUCH = 1.0
"""Seconds between two writes of a lane on which nothing moves."""

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


class PostgresClaim:
    """A lane under (epoch, attempt), in a session of its own; it goes on in another one if that ends."""

    def __init__(self, store: Store, term: Term, lane: Lane, attempt: int) -> None:
        self._store, self._term, self._lane, self._attempt = store, term, lane, attempt
        self._mine = {"pipeline": term.pipeline, "lane": lane, "epoch": term.epoch, "attempt": attempt}
        self.watermark = self._recorded = self._register()
        self._trouble: Mapping[str, str] | None = None
        self._written_at = time.monotonic()
        self._step, self._is_locked = 0, True
        self._counted = Tally()  # what the store counts already, though nobody heard so
        self._unheard: Tally | None = None
        self._turn = Lock()  # one session has one transaction at a time

    def advance(self, watermark: Watermark, tally: Tally) -> None:
        """Record progress, or learn whether the claim still stands. Raises TermLost, StateUnavailable."""
        with self._turn:
            self._recover()
            self._advance(watermark, tally, time.monotonic())

    def holds(self, rows: Collection[Row] | None = None) -> Sequence[Hold]:
        """The letters of the pipeline; or those that share one of these rows."""
        with self._turn:
            self._recover()
            return letters.holds(self._store, self._term.pipeline, rows)

    def park(self, parked: Sequence[DeadLetter]) -> None:
        """Keep these letters."""
        with self._parking():
            for letter in parked:
                letters.park(self._store, self._term.pipeline, letter)

    def follow(self, behind: Sequence[DeadLetter]) -> Sequence[bool]:
        """Park those of these that come behind a letter of their key."""
        with self._parking():
            return [letters.follow(self._store, self._term.pipeline, letter) for letter in behind]

    def give_back(self, returned: Sequence[DeadLetter]) -> None:
        """What these were the first to be sent past they have not overtaken."""
        with self._parking():
            for letter in returned:
                letters.give_back(self._store, self._term.pipeline, letter)

    def secure(self) -> None:
        """They are durable as soon as they are parked."""

    def close(self) -> None:
        """Let the lane go."""
        with suppress(StateUnavailable), closing(self._store):
            self._store.rows("select pg_advisory_unlock_all()")

    @contextmanager
    def _parking(self) -> Iterator[None]:
        """One step under the claim, which nobody ends meanwhile."""
        with self._turn:
            self._recover()
            with self._store.atomic():
                if not self._store.rows(_STAY, **self._mine):
                    raise lost(self._term, self._lane, self._attempt)
                letters.queue(self._store, self._term.pipeline)
                yield

    def _advance(self, watermark: Watermark, tally: Tally, now: float) -> None:
        has_news = watermark != self._recorded or tally.delivered or tally.dropped or tally.passed or tally.trouble != self._trouble
        if not has_news and now - self._written_at < TOUCH:
            stands = bool(self._store.rows(_STANDS, **self._mine))
        else:
            stands = self._write(watermark, tally)
            self._recorded, self._trouble, self._written_at = watermark, tally.trouble, now
        if not stands:
            raise lost(self._term, self._lane, self._attempt)

    def _write(self, watermark: Watermark, tally: Tally) -> bool:
        dropped, passed = tally.dropped - self._counted.dropped, tally.passed - self._counted.passed
        self._unheard, self._step = tally, self._step + 1
        if dropped or passed:
            with self._store.atomic():
                if stands := self._move(watermark, tally):
                    letters.count(self._store, self._term.pipeline, dropped=dropped, passed=passed)
        else:
            stands = self._move(watermark, tally)
        self._unheard, self._counted = None, Tally()
        return stands

    def _move(self, watermark: Watermark, tally: Tally) -> bool:
        place = {"position": watermark.position, "cursor": watermark.cursor, "delivered": watermark.delivered}
        changes = tally.delivered - self._counted.delivered
        facts = {"rate": tally.rate, "step": self._step, "trouble": json.dumps(dict(tally.trouble)) if tally.trouble else None}
        return self._store.write(_ADVANCE, **place, changes=changes, **facts, **self._mine)

    def _recover(self) -> None:
        """After the end of a session: another one, the lane's lock, and whether what was written last had arrived."""
        if not self._store.is_usable():
            self._store.close()
            self._store, self._is_locked = Store(self._store.dsn), False
        if self._unheard is not None:
            step = self._store.rows(_STANDS, **self._mine)
            self._counted = self._unheard if step == [(self._step,)] else self._counted
            self._unheard = None
        if not self._is_locked:  # as long as the server believes in the old session, that one keeps successors out
            [(self._is_locked,)] = self._store.rows("select pg_try_advisory_lock(%(lock)s)", lock=lock_of(self._term, self._lane))

    def _register(self) -> Watermark:
        if not (found := self._store.rows(_REGISTER, **self._mine)):
            raise lost(self._term, self._lane, self._attempt)
        cursor, position, delivered = found[0]
        return Watermark(Cursor(cursor), position, delivered)


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
        rows = [] if store.is_new else store.rows(_GRASP, **facts)
        if not rows:
            raise StateLost(f"lane {lane} of {term.pipeline} has no watermark", "start the pipeline again")
        epoch, last_attempt, is_current, is_locked = rows[0]
        if not is_current or (epoch, last_attempt) >= (term.epoch, attempt):
            raise lost(term, lane, attempt)
        if is_locked:
            return int(epoch)
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


def lost(term: Term, lane: Lane, attempt: int) -> TermLost:
    """What to say of a claim that no longer stands."""
    return TermLost(f"attempt {attempt} in term {term.epoch} of {term.pipeline} no longer holds lane {lane}")
